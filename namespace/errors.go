package namespace

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalidNamespace means that no namespace can have this number or name.
	ErrInvalidNamespace = errors.New("namespace: invalid namespace")
	// ErrInvalidKey means that the value is not the name of a lock.
	ErrInvalidKey = errors.New("namespace: invalid key")
	// ErrUnknownNamespace means that the text names a namespace that is not in the Set.
	ErrUnknownNamespace = errors.New("namespace: unknown namespace")
	// ErrClash means that two namespaces of one Set have the same number or the same name.
	ErrClash = errors.New("namespace: two namespaces clash")
)

// An Error says which value was rejected and why. It matches its Sentinel.
type Error struct {
	Sentinel error // ErrInvalidNamespace, ErrInvalidKey or ErrUnknownNamespace
	Value    string
	Reason   string
}

func (e *Error) Error() string { return fmt.Sprintf("%v %s: %s", e.Sentinel, e.Value, e.Reason) }

// Unwrap returns the sentinel.
func (e *Error) Unwrap() error { return e.Sentinel }

// A ClashError names two different namespaces that share a number or a name. It
// matches ErrClash.
type ClashError struct{ A, B Namespace }

func (e *ClashError) Error() string {
	what := "number"
	if e.A.number != e.B.number {
		what = "name"
	}
	return fmt.Sprintf("%v: %v and %v have one %s", ErrClash, e.A, e.B, what)
}

// Is reports whether target is ErrClash.
func (e *ClashError) Is(target error) bool { return target == ErrClash }
