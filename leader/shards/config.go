package shards

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/identity"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// The defaults of a Config, and the limits of a weight.
const (
	DefaultWeight         = 100
	MaxWeight             = 10_000
	DefaultLeaseDuration  = renew.DefaultDuration
	DefaultMovesPerSecond = 100
	DefaultDrainTimeout   = 30 * time.Second
)

// A Config configures a Node. Name, Backend and one of Shards, Count and List are required. The zero value
// of every other field is a good default.
type Config struct {
	// Name identifies the group of shards in logs and errors. Required.
	Name string

	// Backend stores the ownership. Required, and not shared with another Node.
	Backend driver.Backend

	// Identity distinguishes this node from others and must be unique. "" = the host name and a random
	// suffix, new for each Node, as for an Elector.
	Identity string

	// Shards lists the names of all shards of the group; this node gets its part of them. One of Shards,
	// Count and List is required.
	Shards []string

	// Count is short for Shards "0", "1", … up to Count-1.
	Count int

	// List returns the names, if they change over time. It is called when Run begins, and each time
	// ListChanged receives a value. If it fails, the error is reported, the names stay unchanged, and it is
	// called again after LookInterval. Its ctx ends when Run's ctx ends, or after LeaseDuration.
	List        func(ctx context.Context) ([]string, error)
	ListChanged <-chan struct{}

	// Weight determines this node's part of the shards: a node of weight 200 gets twice as many as one of
	// 100. 0 = 100; at most 10,000. SetWeight changes it.
	Weight int

	// LeaseDuration is how long ownership lasts without a renewal. If a node is stopped or cut off, others
	// can own its shards after at most this time. 0 = 15 s; 500 ms to 24 h.
	LeaseDuration time.Duration

	// RenewInterval is the time between renewals. One renewal covers all shards of a session. 0 =
	// LeaseDuration/3.
	RenewInterval time.Duration

	// RenewTimeout bounds one call of the backend. 0 = LeaseDuration/3. If an attempt to open a session takes too
	// long, the next attempt has twice the time, up to LeaseDuration. If sessions keep ending early because calls
	// take too long, OnError receives an error that says how long they take.
	RenewTimeout time.Duration

	// LossDrain is the time in which work can stop if renewals fail: the contexts of a session's shards end this
	// long before its lease can. 0 = LeaseDuration/10; negative = none.
	LossDrain time.Duration

	// LookInterval is how often the node queries the members and owners. It also does so when its
	// backend reports a change. 0 = LeaseDuration/5.
	LookInterval time.Duration

	// MinStay is how long a shard stays with the node that claimed it before it can move for balance.
	// Pinned shards, and shards of nodes that are gone or draining, move at once. 0 = LeaseDuration;
	// negative = none.
	MinStay time.Duration

	// MovesPerSecond limits how many shards this node gives up per second for balance. 0 = 100.
	MovesPerSecond int

	// DrainTimeout bounds the wait for a shard's work to end when the shard is given up. Meanwhile the
	// node keeps renewing it. 0 = 30 s.
	DrainTimeout time.Duration

	// KeepUntilDrained sets whether the node keeps the shard when DrainTimeout has passed. false = the shard is
	// released, and its next owner may overlap with the work. true = the shard is kept and renewed until the work
	// has ended. In both cases OnError gets an error that matches leader.ErrDrainExceeded.
	KeepUntilDrained bool

	// Restart sets the delay before work that failed or panicked begins again on this node, by the number of
	// consecutive failures. If work fails after it has run for a minute, the count starts again at one. nil
	// = backoff.Exponential{MaxAttempts: 5}.
	//
	// If Restart allows no further attempt, the shard is given away. This node does not claim it again for four
	// times LeaseDuration, or for a minute if that is longer. If the shard is pinned to this node, or no other
	// node would claim it, the node keeps the shard instead. The work then begins again after the same time, and
	// OnError is called.
	Restart backoff.Strategy

	// Callbacks receive the node's events.
	Callbacks Callbacks

	// Logger receives errors (Warn), panics (Error), sessions (Info), and claims, moves and releases (Debug).
	// nil = discard.
	Logger *slog.Logger
}

// withDefaults validates c and fills in its defaults.
func (c Config) withDefaults() (Config, error) {
	c.Weight = cmp.Or(c.Weight, DefaultWeight)
	t := c.times().WithDefaults()
	c.LeaseDuration, c.RenewInterval, c.RenewTimeout, c.LossDrain = t.Duration, t.Interval, t.Timeout, t.Drain
	c.LookInterval = cmp.Or(c.LookInterval, c.LeaseDuration/5)
	c.MinStay = max(cmp.Or(c.MinStay, c.LeaseDuration), 0)
	c.MovesPerSecond = cmp.Or(c.MovesPerSecond, DefaultMovesPerSecond)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.Logger = background.Logger(c.Logger)
	if c.Restart == nil {
		c.Restart = backoff.Exponential{MaxAttempts: 5}
	}
	if c.Identity == "" {
		c.Identity = identity.Random()
	}
	return c, cmp.Or(c.checkNames(), c.checkTimes())
}

func (c Config) checkNames() error {
	given := 0
	for _, yes := range []bool{len(c.Shards) > 0, c.Count != 0, c.List != nil} {
		if yes {
			given++
		}
	}
	switch {
	case c.Name == "":
		return wrong("Name", `""`, "name the group of shards, for logs and errors")
	case c.Backend == nil:
		return wrong("Backend", nil, "pass one, such as that of shards/shardstest")
	case c.Backend.Sessions() < 1:
		return wrong("Backend", fmt.Sprintf("one with %d sessions", c.Backend.Sessions()), "it has to have one at least")
	case !identity.Printable(c.Identity):
		return wrong("Identity", fmt.Sprintf("%q", c.Identity), "use printable characters")
	case given != 1:
		return wrong("Shards", fmt.Sprintf("one of %d lists", given), "set one of Shards, Count and List")
	case c.Count < 0:
		return wrong("Count", c.Count, "use a positive number")
	case c.Weight < 1 || c.Weight > MaxWeight:
		return wrongWeight(c.Weight)
	case c.MovesPerSecond < 1:
		return wrong("MovesPerSecond", c.MovesPerSecond, "use a positive number, or 0 for 100")
	}
	return checkShards(c.Shards)
}

// checkShards refuses names that no backend can store.
func checkShards(names []string) error {
	for _, name := range names {
		if !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
			return wrong("Shards", fmt.Sprintf("%q", name), "use valid UTF-8 without zero bytes")
		}
	}
	return nil
}

func wrongWeight(weight int) error {
	return wrong("Weight", weight, "use 1 to 10000, or 0 for 100; a node that is to own nothing drains")
}

func (c Config) checkTimes() error {
	if err := c.times().Check(wrong); err != nil {
		return err
	}
	const least = 10 * time.Millisecond // a smaller value is probably a number without its unit
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"LookInterval", c.LookInterval},
		{"DrainTimeout", c.DrainTimeout},
	} {
		if d.value < least {
			return wrong(d.field, d.value, "use 10ms at least, or 0 for the default")
		}
	}
	return nil
}

func wrong(field string, value any, remedy string) error {
	return &leader.ConfigError{Field: field, Value: value, Remedy: remedy}
}

func (c Config) times() renew.Times {
	return renew.Times{Duration: c.LeaseDuration, Interval: c.RenewInterval, Timeout: c.RenewTimeout, Drain: c.LossDrain}
}

// patience is how long a member may leave alone shards that it should take: it needs to look, to claim, and
// to be seen as the owner.
func (c Config) patience() time.Duration { return 3*c.LookInterval + c.RenewTimeout }

// shun is how long a node does not claim a shard whose work it could not keep running.
func (c Config) shun() time.Duration { return max(4*c.LeaseDuration, time.Minute) }

// names returns Shards, or the names that Count is short for.
func (c Config) names() []string {
	names := c.Shards
	for i := range c.Count {
		names = append(names, fmt.Sprint(i))
	}
	return names
}
