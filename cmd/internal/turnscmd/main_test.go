package turnscmd_test

import (
	"testing"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }
