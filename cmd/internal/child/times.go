package child

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/supervise"
)

// The end of a command must fit into the lease, after which another node can lead.
//
//	├─ renewals ──────┬─ --kill-after ─┬─ signals ─┬─ clocks ─┤
//	0     context ends, --signal     KILL        gone   --lease-duration
const (
	killShare   = 5  // --kill-after is a fifth of the lease by default
	SignalShare = 50 // a fiftieth is for sending the signals and for their effect
)

// DescribeKillAfter describes the default of --kill-after in words.
func DescribeKillAfter(flags *pflag.FlagSet, lease string) {
	flag := flags.Lookup("kill-after")
	flag.Usage += fmt.Sprintf(" (default: a fifth of --%s, 5s at most)", lease)
	flag.DefValue = "0s" // not printed
}

// DefaultKillAfter returns --kill-after for a command whose lock is free after lease.
func DefaultKillAfter(lease time.Duration) time.Duration {
	return min(supervise.DefaultKillAfter, lease/killShare)
}

// shortestSignals is the least time for sending signals and for their effect. A short lease needs it, too.
const shortestSignals = 20 * time.Millisecond

// SignalTime returns the time for sending signals and for their effect, for a lock that is free after lease.
func SignalTime(lease time.Duration) time.Duration { return max(lease/SignalShare, shortestSignals) }
