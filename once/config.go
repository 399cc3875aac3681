package once

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/identity"
	"github.com/pglatch/pglatch/lease"
)

// Defaults and limits of a Config.
const (
	DefaultWindow = time.Hour
	DefaultTTL    = 15 * time.Second
	DefaultEarly  = 10 * time.Second

	MinTTL   = 100 * time.Millisecond
	MaxTTL   = 10 * time.Minute
	MaxEarly = 10 * time.Minute
)

// A Config configures a Runner. Store is required. The zero value of every other field is a good
// default.
type Config struct {
	// Store keeps the claims: package once/postgres, or once/leased on any lease.Store.
	Store Store

	// Node is the name of this node that others see. It need not be unique. "" = host name and
	// process id.
	Node string

	// Window is how long after its tick a run may begin, by the store's clock. A later run gets a
	// *WindowError. 0 = DefaultWindow; at most what the store keeps. Nodes may have different
	// Windows.
	Window time.Duration

	// Early is how far a tick may be ahead of the store's clock, because this machine's clock may
	// be ahead. 0 = DefaultEarly; at most MaxEarly.
	Early time.Duration

	// TTL is how long a tick stays with a run that died. A live run renews its claim three times
	// per TTL, so the Store has a third of the TTL for each renewal. 0 = DefaultTTL; MinTTL to
	// MaxTTL.
	TTL time.Duration

	// Wait is how long Claim and Do wait for a tick that another node runs. They return as soon as
	// that run has ended, and get the tick if the node died or gave it back. 0 = no wait. The tick
	// of a run that died is then repeated only if a node asks for it again, for example after
	// Missed.
	Wait time.Duration

	// Retry reports whether to give a tick back after its run failed with err. If so, the next
	// node that asks for the tick within the window runs it again, and so on after each failure.
	// nil = never: the tick stays Failed. A run that failed after its own ctx ended, or after its
	// claim was lost, counts as cut short. Its tick is always given back.
	Retry func(err error) bool
}

func (c Config) validated() (Config, error) {
	c.Node = cmp.Or(c.Node, identity.Process())
	c.Window = cmp.Or(c.Window, DefaultWindow)
	c.Early = cmp.Or(c.Early, DefaultEarly)
	c.TTL = cmp.Or(c.TTL, DefaultTTL).Truncate(time.Millisecond)
	if c.Store == nil {
		return c, &InvalidError{"Config.Store", "nil", "make one with once/postgres or once/leased"}
	}
	if c.Wait < 0 {
		return c, &InvalidError{"Config.Wait", c.Wait.String(), "use a positive duration, or 0 for none"}
	}
	if keeps := c.Store.Keeps(); c.Window > keeps {
		return c, &InvalidError{"Config.Window", c.Window.String(), fmt.Sprintf("this store remembers runs for %v: use at most that", keeps)}
	}
	return c, c.request("job", time.Unix(0, 0)).Validate()
}

// NewRequest returns the request of a Runner with that Config, for stores that run work themselves.
func NewRequest(c Config, job string, tick time.Time) (Request, error) {
	c, err := c.validated()
	if err != nil {
		return Request{}, err
	}
	r := c.request(job, tick)
	return r, r.Validate()
}

func (c Config) request(job string, tick time.Time) Request {
	return Request{Job: job, Tick: Normal(tick), Node: c.Node, TTL: c.TTL, Window: c.Window, Early: c.Early}
}

// Normal returns a tick as stores keep it: in UTC, cut to whole microseconds.
func Normal(tick time.Time) time.Time { return tick.UTC().Round(0).Truncate(time.Microsecond) }

// Validate returns an *InvalidError for the first field that is out of bounds.
func (r Request) Validate() error {
	if err := ValidateJob(r.Job); err != nil {
		return err
	}
	if err := validateName("Config.Node", r.Node, maxNode); err != nil {
		return err
	}
	switch {
	case r.Tick.Year() < 1970 || r.Tick.Year() > 9999 || r.Tick != Normal(r.Tick):
		return &InvalidError{"tick", r.Tick.String(), "use a time from 1970 to 9999"}
	case r.TTL < MinTTL || r.TTL > MaxTTL:
		return &InvalidError{"Config.TTL", r.TTL.String(), fmt.Sprintf("use %v to %v", MinTTL, MaxTTL)}
	case r.Window < 0:
		return &InvalidError{"Config.Window", r.Window.String(), "use a positive duration"}
	case r.Early < 0 || r.Early > MaxEarly:
		return &InvalidError{"Config.Early", r.Early.String(), fmt.Sprintf("use at most %v", MaxEarly)}
	}
	return nil
}

const (
	maxJob  = 400
	maxNode = 200
)

// ValidateJob returns an *InvalidError unless job is a valid job name: 1 to 400 bytes of valid
// UTF-8 without control characters, and without segments "." or ".." between slashes.
func ValidateJob(job string) error { return validateName("job", job, maxJob) }

// CheckWork returns an *InvalidError for a nil function, for stores that run work themselves.
func CheckWork(fn func(ctx context.Context) error) error {
	if fn == nil {
		return &InvalidError{"fn", "nil", "give the function that does the work, or call Runner.Claim to do it elsewhere"}
	}
	return nil
}

func validateName(field, value string, longest int) error {
	if len(value) > longest {
		return &InvalidError{field, strconv.Itoa(len(value)) + " bytes long", fmt.Sprintf("use at most %d", longest)}
	}
	if invalid, ok := errors.AsType[*lease.InvalidError](lease.ValidateName(value)); ok {
		return &InvalidError{field, invalid.Value, invalid.Remedy}
	}
	return nil
}

// Check returns a *WindowError unless the tick is in the window at now, the store's time.
func (r Request) Check(now time.Time) error {
	switch late := now.Sub(r.Tick); {
	case late > r.Window:
		return &WindowError{r.Job, r.Tick, late, r.Window}
	case -late > r.Early:
		return &WindowError{r.Job, r.Tick, late, r.Early}
	}
	return nil
}
