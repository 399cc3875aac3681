//go:build integration

package seams

import (
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

// patience is how long a use may take.
const patience = 60 * time.Second

func TestMain(m *testing.M) { clitest.MainOf(m, "../../cmd/pglatch") }
