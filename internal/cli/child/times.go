package child

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/internal/cli/supervise"
)

// The end of a command is fitted into the lease, after which another node can lead.
//
//	├─ renewals ──────┬─ --kill-after ─┬─ signals ─┬─ clocks ─┤
//	0     context ends, --signal     KILL        gone   --lease-duration
const (
	killShare   = 5  // --kill-after is a fifth of the lease, unless it is given
	SignalShare = 50 // a fiftieth is for the signals to be sent and to act
	ClockShare  = 10 // a tenth is for clocks of different rates: package leader, "The times"
)

// DescribeKillAfter says in words what the default of --kill-after is.
func DescribeKillAfter(flags *pflag.FlagSet, lease string) {
	flag := flags.Lookup("kill-after")
	flag.Usage += fmt.Sprintf(" (default: a fifth of --%s, 5s at most)", lease)
	flag.DefValue = "0s" // which is not printed
}

// DefaultKillAfter is --kill-after for a command whose lock is free after lease.
func DefaultKillAfter(lease time.Duration) time.Duration {
	return min(supervise.DefaultKillAfter, lease/killShare)
}

// ShortestSignals is the least time for signals to be sent and to act, which a short
// lease must have, too.
const ShortestSignals = 20 * time.Millisecond
