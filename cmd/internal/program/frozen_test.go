package program_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
)

func TestExitCodesAreFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "exit-codes", append(frozen.Constants(t, ".", "Exit[A-Z].*"), frozen.Constants(t, "../supervise", "Exit[A-Z].*")...))
}
