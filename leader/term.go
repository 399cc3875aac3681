package leader

import (
	"context"

	"github.com/pglatch/pglatch/leader/driver"
)

// A Term numbers a leadership and is a fencing token; driver.ParseTerm and
// driver.TermOf read what its String and Uint64 wrote. The zero Term is none.
type Term = driver.Term

type termKey struct{}

// TermOfContext returns the term of a leader's context, also after its end, and
// the zero Term of any other.
func TermOfContext(ctx context.Context) Term {
	t, _ := ctx.Value(termKey{}).(Term)
	return t
}
