package leader

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/identity"
	"github.com/pglatch/pglatch/leader/driver"
)

// The defaults of a Config.
const (
	DefaultLeaseDuration = driver.DefaultLeaseDuration
	DefaultDrainTimeout  = 30 * time.Second
)

// minStandAside is how long a node that stepped down lets others try, at least.
const minStandAside = 2 * time.Second

// A Config says how an Elector takes part in its election. The zero value of every
// field but Name and Backend is a good default.
type Config struct {
	// Name is the election in logs and errors. Required.
	Name string

	// Backend is where leadership lives. Required, and not shared with another Elector.
	Backend Backend

	// Identity tells this node from others. "" = the host name and a random suffix,
	// new for each Elector: a host name alone is shared by the processes of a host, and by
	// a process and its successor after a restart.
	Identity string

	// LeaseDuration is how long leadership lasts without a renewal: what a leader that
	// is stopped or cut off costs at most, before others can lead. 0 = 15 s; 500 ms to 24 h.
	LeaseDuration time.Duration

	// RenewInterval is the time between renewals. 0 = LeaseDuration/3.
	RenewInterval time.Duration

	// RenewTimeout bounds one call of the backend. 0 = LeaseDuration/3.
	RenewTimeout time.Duration

	// MaxRenewFailures is how many failed renewals in a row end leadership. 0 = as many
	// as the lease has time for. Whatever it is, leadership ends before the lease can. A
	// backend that knows of a loss at once does not wait for it.
	MaxRenewFailures int

	// LossDrain is how long before the lease can end a leader's context does, if
	// renewals fail: the time that work has to stop. 0 = LeaseDuration/10; negative =
	// none.
	LossDrain time.Duration

	// Retry says when to try again, to acquire and to reconnect. nil = FixedInterval{}.
	Retry Backoff

	// ReconnectGrace is how long a leader that was lost tries to recover before it
	// reports the loss. It does not lead meanwhile: its context has ended. With a
	// backend on which others wait for leadership one of them mostly gets it first.
	// 0 = it reports at once.
	ReconnectGrace time.Duration

	// LeadOnce ends the Elector after it led, or after an attempt failed with an error. false =
	// the node stands for election again.
	LeadOnce bool

	// KeepTrying says what follows if no attempt can succeed until somebody changes
	// something: a wrong password, no such database, no table, no rights; see ErrPermanent.
	// false = Start and Run return the error of the first attempt that fails so. Once the node
	// has led, or followed for LeaseDuration, the mistake is somebody's who is at work now: then,
	// and with true, the error is logged, reported to OnError, and Retry says when to try again.
	KeepTrying bool

	// DrainTimeout bounds the wait for work to end when leadership is given up; it is
	// renewed meanwhile. 0 = 30 s.
	DrainTimeout time.Duration

	// KeepUntilDrained says what happens then. false = leadership is released: a successor may
	// overlap with the work, but with terms it learns that this end was not in order, and waits its
	// SettleDelay. true = leadership is kept, and renewed, until the work has ended; StepDown's ctx
	// still bounds it. In both cases it is logged, and OnError gets an error that matches
	// ErrDrainExceeded: with true while this node still leads, so that a program whose work hangs
	// can end itself there, by os.Exit, and no successor overlaps with it.
	KeepUntilDrained bool

	// SettleDelay is how long a new leader waits before it leads, unless it knows that
	// its predecessor ended in order. It does not know that after a fail-over or a restart of the server, nor in the first
	// term of all. A server that ends a leader's session informs the leader
	// a moment after the successor; a delay longer than that moment (ten milliseconds
	// on a good network) covers it. 0 = none.
	SettleDelay time.Duration

	// Callbacks are reported what happens.
	Callbacks Callbacks

	// Logger gets transitions (Info; Debug for the attempts of a follower); why attempts fail, each reason once and then each minute (Warn), and
	// that they succeed again (Info); lost leaderships and slow callbacks (Warn); panics (Error). Each line has the election's name,
	// and its key if the backend has one. nil = discard.
	Logger *slog.Logger
}

// NewConfig returns the times that most programs want, written out, for the node of
// this identity: a lease of 15 s, a renewal each 5 s, an attempt each 2 s (jittered), and
// leadership that ends after three failed renewals in a row. Name and Backend are still
// to be set.
func NewConfig(identity string) Config {
	return Config{
		Identity:         identity,
		LeaseDuration:    DefaultLeaseDuration,
		RenewInterval:    DefaultLeaseDuration / 3,
		Retry:            FixedInterval{Interval: defaultRetryInterval},
		MaxRenewFailures: 3,
	}
}

// withDefaults validates a config and fills its defaults.
func (c Config) withDefaults() (Config, error) {
	c.LeaseDuration = cmp.Or(c.LeaseDuration, DefaultLeaseDuration)
	c.RenewInterval = cmp.Or(c.RenewInterval, c.LeaseDuration/3)
	c.RenewTimeout = cmp.Or(c.RenewTimeout, c.LeaseDuration/3)
	c.LossDrain = max(cmp.Or(c.LossDrain, c.LeaseDuration/10), 0)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Retry == nil {
		c.Retry = FixedInterval{}
	}
	if c.Identity == "" {
		c.Identity = identity.Random()
	}
	switch {
	case c.Name == "":
		return c, wrong("Name", `""`, "name the election, for logs and errors")
	case c.Backend == nil:
		return c, wrong("Backend", nil, "pass one, such as that of leader/postgres")
	case strings.ContainsFunc(c.Identity, func(r rune) bool { return r < ' ' }):
		return c, wrong("Identity", fmt.Sprintf("%q", c.Identity), "use printable characters")
	case c.LeaseDuration < driver.MinLeaseDuration || c.LeaseDuration > driver.MaxLeaseDuration:
		return c, wrong("LeaseDuration", c.LeaseDuration, "use 500ms to 24h, or 0 for the default of 15s")
	case c.MaxRenewFailures < 0:
		return c, wrong("MaxRenewFailures", c.MaxRenewFailures, "use a positive number, or 0 for as many as the lease has time for")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"RenewInterval", c.RenewInterval},
		{"RenewTimeout", c.RenewTimeout},
		{"ReconnectGrace", c.ReconnectGrace},
		{"DrainTimeout", c.DrainTimeout},
		{"SettleDelay", c.SettleDelay},
	} {
		if d.value < 0 {
			return c, wrong(d.field, d.value, "use a positive duration, or 0 for the default")
		}
	}
	switch least := 10 * time.Millisecond; { // less is a number without its unit
	case c.RenewInterval < least:
		return c, wrong("RenewInterval", c.RenewInterval, "use 10ms at least, or 0 for a third of LeaseDuration")
	case c.RenewTimeout < least:
		return c, wrong("RenewTimeout", c.RenewTimeout, "use 10ms at least, or 0 for a third of LeaseDuration")
	}
	return c, c.checkTimes()
}

func wrong(field string, value any, remedy string) error {
	return &ConfigError{Field: field, Value: value, Remedy: remedy}
}

// checkTimes refuses times by which one slow renewal would cost leadership.
func (c Config) checkTimes() error {
	if need := c.LossDrain + c.RenewInterval + c.RenewTimeout; need >= c.LeaseDuration-c.margin() {
		return wrong("LeaseDuration", c.LeaseDuration, fmt.Sprintf(
			"LossDrain %v + RenewInterval %v + RenewTimeout %v = %v, which must be less than LeaseDuration %v - margin %v = %v: lengthen the lease or shorten one of them",
			c.LossDrain, c.RenewInterval, c.RenewTimeout, need, c.LeaseDuration, c.margin(), c.LeaseDuration-c.margin()))
	}
	return nil
}

// margin is for clocks that do not run at the same rate.
func (c Config) margin() time.Duration { return c.LeaseDuration / 10 }

// trust is the time from the start of a good renewal to the deadline by which leadership ends.
func (c Config) trust() time.Duration { return c.LeaseDuration - c.margin() - c.LossDrain }

func (c Config) rules() rules {
	return rules{grace: c.ReconnectGrace > 0, reacquire: !c.LeadOnce}
}
