//go:build integration

package seams

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

const patience = await.Patience

func TestMain(m *testing.M) { clitest.MainOf(m, "../../cmd/pglatch") }
