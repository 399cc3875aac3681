package leadercmd

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/child"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/driver"
)

// leaderTimes are the times of a node that runs a command.
type leaderTimes struct{ lease, health, renew, kill time.Duration }

// times returns the times of the flags, with this lease duration.
func (r *runCommand) times(flags *pflag.FlagSet, lease time.Duration) leaderTimes {
	t := leaderTimes{lease, cmp.Or(r.config.RenewInterval, lease/3), cmp.Or(r.config.RenewTimeout, lease/3), child.DefaultKillAfter(lease)}
	if flags.Changed("kill-after") {
		t.kill = r.KillAfter
	}
	return t
}

func (t leaderTimes) signals() time.Duration { return t.lease / child.SignalShare }

func (t leaderTimes) clocks() time.Duration { return t.lease / child.ClockShare }

// need is the total time for one slow renewal and the end of the command.
func (t leaderTimes) need() time.Duration { return t.health + t.renew + t.kill + t.signals() }

func (t leaderTimes) fit() bool { return t.need() < t.lease-t.clocks() }

// fit makes the leader's context end early enough that the command is gone when another node can
// lead. If that is impossible, the error names the flags.
func (r *runCommand) fit(flags *pflag.FlagSet) error {
	t := r.times(flags, r.config.LeaseDuration)
	r.KillAfter, r.config.LossDrain = t.kill, t.kill+t.signals()
	if t.fit() || t.lease <= 0 { // leader.New refuses such a lease
		return nil
	}
	remedy := "shorten one of them"
	for lease := longer(t.lease); lease <= driver.MaxLeaseDuration; lease = longer(lease) {
		if r.times(flags, lease).fit() {
			remedy = fmt.Sprintf("shorten one of them, or use a --lease-duration of %v", lease)
			break
		}
	}
	return program.UsageError("--health-interval %v + --renew-timeout %v + --kill-after %v + %v for the signals to act = %v, "+
		"which must be less than --lease-duration %v - %v for clocks of different rates = %v, "+
		"or the command can go on when another node leads: %s",
		t.health, t.renew, t.kill, t.signals(), t.need(), t.lease, t.clocks(), t.lease-t.clocks(), remedy)
}

// longer returns the next longer duration that is easy to read.
func longer(d time.Duration) time.Duration {
	unit := time.Millisecond
	for d >= 100*unit {
		unit *= 10
	}
	return d.Truncate(unit) + unit
}
