package wire

import (
	"fmt"
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
)

func TestTheTypesOfProblemsAreFrozen(t *testing.T) {
	t.Parallel()
	facts := frozen.JSON[Problem](t, "problem")
	for _, k := range kinds {
		facts = append(facts, fmt.Sprintf("%s %d", k.Type, k.Status))
	}
	frozen.Check(t, "problems", facts)
}
