package plan

import (
	"os"
	"testing"

	"github.com/pglatch/pglatch/internal/test/soak"
)

func TestMain(m *testing.M) {
	soak.Repeatable()
	os.Exit(m.Run())
}
