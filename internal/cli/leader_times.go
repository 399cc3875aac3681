package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/internal/supervise"
	"github.com/pglatch/pglatch/leader/driver"
)

// The end of a command is fitted into the lease, after which another node can lead.
//
//	├─ renewals ──────┬─ --kill-after ─┬─ signals ─┬─ clocks ─┤
//	0     context ends, --signal     KILL        gone   --lease-duration
const (
	killShare   = 5  // --kill-after is a fifth of the lease, unless it is given
	signalShare = 50 // a fiftieth is for the signals to be sent and to act
	clockShare  = 10 // a tenth is for clocks of different rates: package leader, "The times"
)

// describeKillAfter says in words what the default of --kill-after is.
func describeKillAfter(flags *pflag.FlagSet, lease string) {
	flag := flags.Lookup("kill-after")
	flag.Usage += fmt.Sprintf(" (default: a fifth of --%s, 5s at most)", lease)
	flag.DefValue = "0s" // which is not printed
}

// defaultKillAfter is --kill-after for a command whose lock is free after lease.
func defaultKillAfter(lease time.Duration) time.Duration {
	return min(supervise.DefaultKillAfter, lease/killShare)
}

// leaderTimes are the times of a node that runs a command.
type leaderTimes struct{ lease, health, renew, kill time.Duration }

// times are those of the flags, with a lease of that length.
func (r *leaderRun) times(flags *pflag.FlagSet, lease time.Duration) leaderTimes {
	t := leaderTimes{lease, cmp.Or(r.config.RenewInterval, lease/3), cmp.Or(r.config.RenewTimeout, lease/3), defaultKillAfter(lease)}
	if flags.Changed("kill-after") {
		t.kill = r.killAfter
	}
	return t
}

func (t leaderTimes) signals() time.Duration { return t.lease / signalShare }

func (t leaderTimes) clocks() time.Duration { return t.lease / clockShare }

// need is what one slow renewal and the end of the command take together.
func (t leaderTimes) need() time.Duration { return t.health + t.renew + t.kill + t.signals() }

func (t leaderTimes) fit() bool { return t.need() < t.lease-t.clocks() }

// fit makes the leader's context end so early that the command is gone when another
// node can lead. The error names the flags by which it cannot be.
func (r *leaderRun) fit(flags *pflag.FlagSet) error {
	t := r.times(flags, r.config.LeaseDuration)
	r.killAfter, r.config.LossDrain = t.kill, t.kill+t.signals()
	if t.fit() || t.lease <= 0 { // which leader.New refuses
		return nil
	}
	remedy := "shorten one of them"
	for lease := longer(t.lease); lease <= driver.MaxLeaseDuration; lease = longer(lease) {
		if r.times(flags, lease).fit() {
			remedy = fmt.Sprintf("shorten one of them, or use a --lease-duration of %v", lease)
			break
		}
	}
	return usageError("--health-interval %v + --renew-timeout %v + --kill-after %v + %v for the signals to act = %v, "+
		"which must be less than --lease-duration %v - %v for clocks of different rates = %v, "+
		"or the command can go on when another node leads: %s",
		t.health, t.renew, t.kill, t.signals(), t.need(), t.lease, t.clocks(), t.lease-t.clocks(), remedy)
}

// longer is the next longer duration that is easy to read.
func longer(d time.Duration) time.Duration {
	unit := time.Millisecond
	for d >= 100*unit {
		unit *= 10
	}
	return d.Truncate(unit) + unit
}
