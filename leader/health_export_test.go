package leader

import (
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

// SetBusyFor makes the lifecycle goroutine look busy for d, on a clock that no
// bubble moves; 0 = it waits.
func (e *Elector) SetBusyFor(d time.Duration) {
	if d == 0 {
		e.busy.Store(0)
		return
	}
	e.busy.Store(int64(boottime.Now() - d))
}
