package leadercmd

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/child"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/renew"
)

// times returns the times of the flags, with this lease duration. The drain is for the end of the
// command: kill and signals.
func (r *runCommand) times(flags *pflag.FlagSet, lease time.Duration) (t renew.Times, kill, signals time.Duration) {
	kill, signals = child.DefaultKillAfter(lease), lease/child.SignalShare
	if flags.Changed("kill-after") {
		kill = r.KillAfter
	}
	t = renew.Times{Duration: lease, Interval: r.config.RenewInterval, Timeout: r.config.RenewTimeout, Drain: kill + signals}
	return t.WithDefaults(), kill, signals
}

// fit makes the leader's context end early enough that the command is gone when another node can
// lead. If that is impossible, the error names the flags.
func (r *runCommand) fit(flags *pflag.FlagSet) error {
	t, kill, signals := r.times(flags, r.config.LeaseDuration)
	r.KillAfter, r.config.LossDrain = kill, kill+signals
	if t.Fit() || r.config.LeaseDuration <= 0 { // leader.New refuses such a lease
		return nil
	}
	remedy := "shorten one of them"
	for lease := longer(t.Duration); lease <= renew.MaxDuration; lease = longer(lease) {
		if t, _, _ := r.times(flags, lease); t.Fit() {
			remedy = fmt.Sprintf("shorten one of them, or use a --lease-duration of %v", lease)
			break
		}
	}
	return program.UsageError("--health-interval %v + --renew-timeout %v + --kill-after %v + %v for the signals to act = %v, "+
		"which must be less than --lease-duration %v - %v for clocks of different rates = %v, "+
		"or the command can go on when another node leads: %s",
		t.Interval, t.Timeout, kill, signals, t.Interval+t.Timeout+t.Drain, t.Duration, renew.Margin(t.Duration), t.Duration-renew.Margin(t.Duration), remedy)
}

// longer returns the next longer duration that is easy to read.
func longer(d time.Duration) time.Duration {
	unit := time.Millisecond
	for d >= 100*unit {
		unit *= 10
	}
	return d.Truncate(unit) + unit
}
