package program

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
)

// Waiting is how long a command waits for a lock that somebody else has, and its exit code if that is too short.
type Waiting struct {
	Bounded bool          // otherwise as long as it takes
	Wait    time.Duration // if bounded; 0 = one attempt

	nonblock bool
	code     int
}

// AddFlags adds --nonblock and --wait, which includes what included says, and the flag of AddCodeFlag.
func (w *Waiting) AddFlags(cmd *cobra.Command, included string) {
	f := cmd.Flags()
	w.AddCodeFlag(f)
	f.BoolVarP(&w.nonblock, "nonblock", "n", false, "fail at once if another holder has the lock")
	f.DurationVarP(&w.Wait, "wait", "w", 0, "fail if the lock is not acquired within this time, "+included+" (default: no limit)")
	cmd.MarkFlagsMutuallyExclusive("nonblock", "wait")
}

// AddCodeFlag adds --conflict-exit-code.
func (w *Waiting) AddCodeFlag(f *pflag.FlagSet) {
	f.IntVarP(&w.code, "conflict-exit-code", "E", ExitBusy, "exit `code` if another holder has the lock")
}

// Check checks the flags. The caller calls it before it uses w.
func (w *Waiting) Check(f *pflag.FlagSet) error {
	w.Bounded = w.Bounded || w.nonblock || f.Changed("wait")
	if w.code < 0 || w.code > 255 {
		return UsageError("--conflict-exit-code is %d: use 0 to 255", w.code)
	}
	return CheckWait(w.Wait)
}

// CheckWait checks a --wait for a lock.
func CheckWait(d time.Duration) error { return NotNegative("wait", d, ", or 0s for one attempt") }

// Once reports whether the command makes one attempt.
func (w *Waiting) Once() bool { return w.Bounded && w.Wait == 0 }

// Conflict returns the error of a command that did not get the lock because of err.
func (w *Waiting) Conflict(err error) error { return &ExitError{Code: w.code, Err: err} }

// untold is how long a wait is not reported.
const untold = time.Second

// TellWait logs that the command waits for a lock, with what holder finds out, once the wait has lasted for a while.
// The caller calls stop when the wait is over.
func (a *App) TellWait(ctx context.Context, lock slog.Attr, holder func(context.Context) []slog.Attr) (stop func()) {
	return background.Run(ctx, func(ctx context.Context) {
		if pause.For(ctx, untold) != nil {
			return
		}
		if found := holder(ctx); ctx.Err() == nil {
			a.Logger().LogAttrs(ctx, slog.LevelInfo, "waiting for the lock", append([]slog.Attr{lock}, found...)...)
		}
	})
}
