package cronlock_test

import (
	"os"
	"testing"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeVariable) != "" {
		runNode()
		return
	}
	pgtest.Main(m)
}
