package middleware_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
)

func TestTheTypesOfProblemsAreFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "problems", append(frozen.Constants(t, ".", "Type[A-Z].*"), frozen.Constants(t, "../internal/problem", "TypeBase|MediaType")...))
}
