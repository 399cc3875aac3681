package file

import (
	"crypto/rand"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// A clock tells times that nobody sets. Times of clocks of one id can be compared,
// in whichever process they were read.
type clock struct {
	id  string
	now func() time.Duration
}

// newClock returns the clock that all processes of this boot share, or, where
// there is none, one that is nobody else's.
func newClock() clock {
	id, ok := bootID()
	if !ok {
		id = "alone-" + rand.Text()
	}
	return clock{id: id, now: boottime.Now}
}
