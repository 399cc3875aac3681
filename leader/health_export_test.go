package leader

import (
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
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

// Busy reports whether the lifecycle goroutine is busy.
func (e *Elector) Busy() bool { return e.busy.Load() != 0 }

// Distrust ends the lease of the current leadership before any timer knows it, as
// it happens to a process that was stopped.
func (e *Elector) Distrust() { e.current.Load().until.Set(boottime.Moment{}) }

// Hurry has the Elector make the next attempt at once, however early its last term ended.
func (e *Elector) Hurry() { e.comeback = renew.Comeback{} }
