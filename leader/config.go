package leader

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/identity"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/leader/backoff"
)

// minStandAside is the minimum time for which a node that stepped down lets others try.
const minStandAside = 2 * time.Second

// A Config configures an Elector. Name and Backend are required. The zero value of every other
// field is a good default.
type Config struct {
	// Name identifies the election in logs and errors. Required.
	Name string

	// Backend stores the leadership. Required, and not shared with another Elector.
	Backend Backend

	// Identity distinguishes this node from others. "" = the host name and a random suffix, new for
	// each Elector. A host name alone is not unique: the processes of a host share it, and so do a
	// process and its successor after a restart.
	Identity string

	// LeaseDuration is how long leadership lasts without a renewal. If a leader is stopped or cut
	// off, another node can lead after at most this time. 0 = 15 s; 500 ms to 24 h.
	LeaseDuration time.Duration

	// RenewInterval is the time between renewals. 0 = LeaseDuration/3.
	RenewInterval time.Duration

	// RenewTimeout bounds one call of the backend. 0 = LeaseDuration/3.
	RenewTimeout time.Duration

	// MaxRenewFailures is the number of consecutive failed renewals that end leadership. 0 = as
	// many as the lease has time for. With any value, leadership ends before the lease can. If the
	// backend detects a loss at once, leadership ends at once.
	MaxRenewFailures int

	// LossDrain is the time in which work can stop if renewals fail: the leader's context ends this long before
	// the lease can. 0 = LeaseDuration/10; negative = none.
	LossDrain time.Duration

	// Retry sets the delay before the next attempt to acquire leadership or to reconnect. If it allows no further
	// attempt, the Elector stops with ErrGaveUp. nil = backoff.Fixed{}: 2 s, varied by a fifth. If the delays
	// grow, a follower takes over later and later.
	Retry backoff.Strategy

	// ReconnectGrace is how long a node that lost leadership tries to recover it before it reports
	// the loss. Meanwhile the node does not lead: its context has ended. If other nodes wait for
	// leadership in the backend, one of them usually gets it first. 0 = the node reports the loss
	// at once.
	ReconnectGrace time.Duration

	// LeadOnce ends the Elector after it has led, or after an attempt has failed with an error.
	// false = the node stands for election again.
	LeadOnce bool

	// KeepTrying sets what happens if an attempt fails with a permanent error, such as a wrong
	// password, a missing database or table, or missing rights; see ErrPermanent.
	//
	// false = Start and Run return the error of the first attempt that fails in this way. A node that has already
	// led, or has followed for LeaseDuration, retries instead, because the cause is probably a change that
	// somebody is making right now. true = the node always retries. Before a retry, the error is logged and
	// reported to OnError, and Retry sets the delay.
	KeepTrying bool

	// DrainTimeout bounds the wait for work to end when leadership is given up. The node keeps
	// renewing meanwhile. 0 = 30 s.
	DrainTimeout time.Duration

	// KeepUntilDrained sets whether the node keeps leadership when DrainTimeout has passed.
	//
	// false = leadership is released. The successor may then overlap with the work. If the
	// backend has terms, the successor learns that this end was not orderly and waits its
	// SettleDelay.
	//
	// true = leadership is kept and renewed until the work has ended. StepDown's ctx still bounds
	// that wait.
	//
	// In both cases the timeout is logged, and OnError receives an error that matches
	// ErrDrainExceeded. With true, OnError is called while this node still leads. A program whose
	// work hangs can call os.Exit there, so that no successor overlaps with it.
	KeepUntilDrained bool

	// SettleDelay is how long a new leader waits before it leads, unless it knows that its
	// predecessor ended in good order. It does not know that after a fail-over or a restart of
	// the server, or in the very first term. If the server ends a leader's session, the leader
	// learns of it a moment later than the successor. A delay longer than that moment (ten
	// milliseconds on a good network) prevents an overlap. 0 = none.
	SettleDelay time.Duration

	// Callbacks receive the election's events.
	Callbacks Callbacks

	// Logger receives:
	//
	//   - Error: panics
	//   - Warn: lost leaderships, slow callbacks, and why attempts fail, each reason at once and
	//     then every minute
	//   - Info: transitions, and that attempts succeed again
	//   - Debug: the attempts of a follower
	//
	// Each line has the election's name, and the election's key if the backend has one. nil =
	// discard.
	Logger *slog.Logger
}

// withDefaults validates c and fills in its defaults.
func (c Config) withDefaults() (Config, error) {
	t := c.times().WithDefaults()
	c.LeaseDuration, c.RenewInterval, c.RenewTimeout, c.LossDrain = t.Duration, t.Interval, t.Timeout, t.Drain
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.Logger = background.Logger(c.Logger)
	if c.Retry == nil {
		c.Retry = backoff.Fixed{}
	}
	if c.Identity == "" {
		c.Identity = identity.Random()
	}
	switch {
	case c.Name == "":
		return c, wrong("Name", `""`, "name the election, for logs and errors")
	case c.Backend == nil:
		return c, wrong("Backend", nil, "pass one, such as that of leader/postgres")
	case !identity.Printable(c.Identity):
		return c, wrong("Identity", fmt.Sprintf("%q", c.Identity), "use printable characters")
	case c.MaxRenewFailures < 0:
		return c, wrong("MaxRenewFailures", c.MaxRenewFailures, "use a positive number, or 0 for as many as the lease has time for")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"ReconnectGrace", c.ReconnectGrace},
		{"DrainTimeout", c.DrainTimeout},
		{"SettleDelay", c.SettleDelay},
	} {
		if d.value < 0 {
			return c, wrong(d.field, d.value, "use a positive duration, or 0 for the default")
		}
	}
	return c, t.Check(wrong)
}

func wrong(field string, value any, remedy string) error {
	return &ConfigError{Field: field, Value: value, Remedy: remedy}
}

func (c Config) times() renew.Times {
	return renew.Times{Duration: c.LeaseDuration, Interval: c.RenewInterval, Timeout: c.RenewTimeout, Drain: c.LossDrain}
}

func (c Config) renewals() renew.Rules {
	r := c.times().Rules()
	r.Failures = c.MaxRenewFailures
	return r
}

func (c Config) rules() rules {
	return rules{grace: c.ReconnectGrace > 0, reacquire: !c.LeadOnce}
}
