package cli_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestMain(m *testing.M) { clitest.MainOf(m, "../../pglatch") }

func TestScript(t *testing.T) { clitest.Scripts(t) }
