package file

import (
	"crypto/rand"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// A moment is a time of a clock that nobody sets. Moments of one clock can be
// compared, in whichever process they were read.
type moment struct {
	clock string
	time  time.Duration
}

// newClock returns the clock that all processes of this boot share, or, where
// there is none or it cannot be read, one that is nobody else's.
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
