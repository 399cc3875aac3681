package pgdsn

import "fmt"

// An Error says what is wrong with a connection string, and where, without any part
// of the string.
type Error struct {
	Problem string
	At      int // the byte of the string at which the problem is, from 1; 0 = at no one place
}

func (e *Error) Error() string {
	const withheld = " (the text is withheld: it may hold a password)"
	if e.At == 0 {
		return e.Problem + withheld
	}
	return fmt.Sprintf("%s, at character %d%s", e.Problem, e.At, withheld)
}
