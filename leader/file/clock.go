package file

import (
	"crypto/rand"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// A moment is a time of a clock that nobody can set. Moments of one clock can be compared, whichever process
// read them.
type moment struct {
	clock string
	time  time.Duration
}

// newClock returns the clock that all processes of this boot share. If there is none or it cannot be read,
// newClock returns a clock that no other process has.
func newClock() (now func() moment) {
	boot, known := bootID()
	alone := "alone-" + rand.Text()
	return func() moment {
		now, shared := boottime.Shared()
		if known && shared {
			return moment{boot, now}
		}
		return moment{alone, now}
	}
}
