package turns

import (
	"cmp"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

// The defaults of a Config.
const (
	DefaultConcurrency = 10
	DefaultMaxAttempts = 5
	DefaultPause       = time.Second
	DefaultMaxPause    = 5 * time.Minute
	DefaultMaxBytes    = 256 << 10
	DefaultMaxDepth    = 100_000
	DefaultKeepIDs     = 24 * time.Hour
	DefaultKeepDead    = 30 * 24 * time.Hour
	DefaultSendWait    = 5 * time.Second
	DefaultFinish      = 10 * time.Second
)

// OnDead says what happens to an entity when one of its messages becomes a dead letter.
type OnDead uint8

// The choices for an entity with a dead letter.
const (
	Continue OnDead = iota // the next message has its turn
	Stop                   // no turn, until somebody retries or skips the dead letter
)

// A Config describes a mailbox. Pool, Name and Namespace are required, and Locker for Serve. All other
// fields have good zero values.
type Config struct {
	// Pool makes the connections to the primary. The caller keeps the pool. Sends use the caller's
	// transactions. A pool behind a transaction pooler works, but brings no notifications: then an idle
	// mailbox has its next turn after a second at most.
	Pool *pgxpool.Pool

	// Name is the mailbox's: 1 to 40 lower-case letters, digits, '_', '-' and '.', beginning with a letter.
	Name string

	// Namespace has the keys of the mailbox's entities.
	Namespace namespace.Namespace

	// Locker holds the mutexes of running turns, one for each, and one for the node. It must be on the
	// database of Pool. The caller keeps it. Serve needs one; set its LocksPerConn to have many turns on
	// few connections.
	Locker *advisory.Locker

	// Concurrency is how many turns run on this node at one time. 0 = DefaultConcurrency.
	Concurrency int

	// Batch is how many messages a turn takes at most. 0 = 1. With more, a turn takes all that wait, up to
	// this number. After a failed attempt, turns take one message until one commits, so that one bad
	// message does not make others dead letters.
	Batch int

	// Quiet makes a turn wait until no message came for this time, so that a burst becomes one turn. It
	// waits no longer than five times Quiet after the first message, and not if Batch messages wait.
	// 0 = a turn begins at once. It needs a Batch of 2 or more.
	Quiet time.Duration

	// RefuseBusy refuses messages for an entity that has one, waiting or in a turn, with ErrBusy.
	RefuseBusy bool

	// MaxAttempts is how often messages are tried before they become dead letters. 0 = DefaultMaxAttempts.
	MaxAttempts int

	// Pause is how long an entity pauses after its first failed attempt. The pause doubles with each, up
	// to MaxPause, and a random part of it is left out. 0 = DefaultPause and DefaultMaxPause.
	Pause, MaxPause time.Duration

	// OnDead says whether an entity goes on after a dead letter. The zero value is Continue.
	OnDead OnDead

	// MaxBytes limits a message's body, and MaxDepth the messages that wait for one entity. The limits of
	// the last Migrate or Serve apply to all senders. 0 = DefaultMaxBytes and DefaultMaxDepth.
	MaxBytes, MaxDepth int

	// MaxTotal limits the messages that wait for all entities together, those of running turns too. A server
	// counts them once a second, and less often if a count takes longer than 50 ms, so that counting takes a 20th
	// of the time at most. Senders compare with the last count. So the mailbox can have more: what was sent since,
	// and what transactions sent that were open. It can also refuse for as long although messages were consumed.
	// While no server counts, senders at the limit do so themselves. Like MaxDepth, it is that of the last Migrate
	// or Serve. 0 = no limit.
	MaxTotal int

	// KeepIDs is how long at least the ID of a message is known after its Send. 0 = DefaultKeepIDs.
	KeepIDs time.Duration

	// KeepDead is how long dead letters are kept. 0 = DefaultKeepDead.
	KeepDead time.Duration

	// SendWait bounds how long a Send waits for another transaction that sent to its entity. 0 =
	// DefaultSendWait. A wait shorter than the server's deadlock_timeout finds no deadlock.
	SendWait time.Duration

	// Finish is how long running turns may go on after the context of Serve ended. Then their contexts
	// end. 0 = DefaultFinish; negative = at once.
	Finish time.Duration

	// Node names this process in errors and tables. "" = the host's name with a random suffix. Serve adds
	// a random part of its own.
	Node string

	// Observer receives what happens to turns. The zero value has no functions.
	Observer Observer

	// Logger receives what could go unnoticed: failed looks and turns. nil = discard.
	Logger *slog.Logger
}

// A ConfigError names a field of a Config, its value and the remedy.
type ConfigError struct {
	Field  string
	Value  any
	Remedy string
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("turns: %s is %v: %s", e.Field, e.Value, e.Remedy)
}

var mailboxName = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,39}$`)

// maxBatch limits what a node reads at one time.
const (
	maxBatch       = 10_000
	maxConcurrency = 100_000
)

// validated returns the Config with its defaults.
func (c Config) validated() (Config, error) {
	switch {
	case c.Pool == nil:
		return c, &ConfigError{"Config.Pool", "nil", "set it to a pool of connections to the primary"}
	case !mailboxName.MatchString(c.Name):
		return c, &ConfigError{"Config.Name", fmt.Sprintf("%q", c.Name), "use 1 to 40 lower-case letters, digits, '_', '-' and '.', beginning with a letter"}
	case c.Namespace == namespace.Namespace{}:
		return c, &ConfigError{"Config.Namespace", "zero", "make one with namespace.Must or namespace.New"}
	case c.OnDead > Stop:
		return c, &ConfigError{"Config.OnDead", uint8(c.OnDead), "use Continue or Stop"}
	}
	c.Batch = cmp.Or(c.Batch, 1)
	for _, field := range []struct {
		name        string
		value       *int
		zero, limit int
	}{
		{"Concurrency", &c.Concurrency, DefaultConcurrency, maxConcurrency},
		{"Batch", &c.Batch, 1, maxBatch},
		{"MaxAttempts", &c.MaxAttempts, DefaultMaxAttempts, 1_000_000},
		{"MaxBytes", &c.MaxBytes, DefaultMaxBytes, 100 << 20},
		{"MaxDepth", &c.MaxDepth, DefaultMaxDepth, 1 << 30},
		{"MaxTotal", &c.MaxTotal, 0, 1 << 30},
	} {
		if *field.value < 0 || *field.value > field.limit {
			return c, &ConfigError{"Config." + field.name, *field.value, fmt.Sprintf("use 0 for the default, or 1 to %d", field.limit)}
		}
		*field.value = cmp.Or(*field.value, field.zero)
	}
	for _, field := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"Quiet", &c.Quiet, 0},
		{"Pause", &c.Pause, DefaultPause},
		{"MaxPause", &c.MaxPause, DefaultMaxPause},
		{"KeepIDs", &c.KeepIDs, DefaultKeepIDs},
		{"KeepDead", &c.KeepDead, DefaultKeepDead},
		{"SendWait", &c.SendWait, DefaultSendWait},
	} {
		if *field.value < 0 || *field.value > 0 && *field.value < time.Millisecond || *field.value > longest {
			return c, &ConfigError{"Config." + field.name, *field.value, fmt.Sprintf("use 0 for the default, or a millisecond to %v", longest)}
		}
		*field.value = cmp.Or(*field.value, field.zero)
	}
	if c.Quiet > 0 && c.Batch == 1 {
		return c, &ConfigError{"Config.Quiet", c.Quiet, "set Batch to 2 or more, or leave Quiet out"}
	}
	c.MaxPause = max(c.MaxPause, c.Pause)
	c.Finish = max(cmp.Or(c.Finish, DefaultFinish), 0)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// longest limits the times of a Config.
const longest = 10 * 365 * 24 * time.Hour
