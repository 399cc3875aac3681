package leader

import (
	"context"

	"github.com/pglatch/pglatch/leader/driver"
)

// A Term numbers a leadership and is a fencing token. driver.ParseTerm and driver.TermOf parse the results of
// its String and Uint64. The zero Term means that there is none.
type Term = driver.Term

type termKey struct{}

// TermOfContext returns the term of a leader's context, even after the context has ended. For any other
// context it returns the zero Term.
func TermOfContext(ctx context.Context) Term {
	t, _ := ctx.Value(termKey{}).(Term)
	return t
}
