package turns

import (
	"cmp"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/background"
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

// A Config describes a mailbox. Pool, Name and Namespace are required, and Locker for Serve. The zero
// value of every other field is a good default.
type Config struct {
	// Pool makes the connections to the primary. The caller owns the pool. Sends use the caller's
	// transactions. A pool behind a transaction pooler works, but receives no notifications: an idle
	// mailbox then begins its next turn after at most a second.
	Pool *pgxpool.Pool

	// Name is the name of the mailbox: 1 to 40 lower-case letters, digits, '_', '-' and '.', beginning with
	// a letter.
	Name string

	// Namespace is the namespace of the keys of the mailbox's entities.
	Namespace namespace.Namespace

	// Locker holds the mutexes of running turns, one for each, and one for the node. It must be on the
	// database of Pool. The caller owns it. Serve needs one. To run many turns on few connections, set
	// its LocksPerConn.
	Locker *advisory.Locker

	// Concurrency is how many turns can run on this node at a time. 0 = DefaultConcurrency.
	Concurrency int

	// Batch is the maximum number of messages that a turn takes. 0 = 1. With more, a turn takes all that
	// are waiting, up to this number. After a failed attempt, turns take one message each until one of
	// them commits, so that one bad message does not make others dead letters.
	Batch int

	// Quiet makes a turn wait until no message has arrived for this time, so that a burst becomes one
	// turn. The turn begins at the latest five times Quiet after the first message, or when Batch
	// messages are waiting. 0 = a turn begins at once. Quiet needs a Batch of 2 or more.
	Quiet time.Duration

	// RefuseBusy makes Send return ErrBusy for an entity that already has a message, waiting or in
	// a turn.
	RefuseBusy bool

	// MaxAttempts is how often a message is tried before it becomes a dead letter. 0 = DefaultMaxAttempts.
	MaxAttempts int

	// Pause is how long an entity pauses after its first failed attempt. The pause doubles with each
	// further failure, up to MaxPause, and is shortened by a random part. 0 = DefaultPause and
	// DefaultMaxPause.
	Pause, MaxPause time.Duration

	// OnDead says whether an entity continues after a dead letter. The zero value is Continue.
	OnDead OnDead

	// MaxBytes limits a message's body, and MaxDepth the messages that wait for one entity. The limits of
	// the last Migrate or Serve apply to all senders. 0 = DefaultMaxBytes and DefaultMaxDepth.
	MaxBytes, MaxDepth int

	// MaxTotal limits the messages of all entities together, including those of running turns. A server counts
	// them once a second. If a count takes longer than 50 ms, the server counts less often, so that counting takes
	// at most a 20th of the time. Senders compare with the last count. So the mailbox can exceed the limit by the
	// messages that were sent since, and by those of transactions that were open during the count. For the same
	// reason it can refuse messages for a while after others have been consumed. While no server counts, senders
	// at the limit count themselves. As with MaxDepth, the value of the last Migrate or Serve applies. 0 = no
	// limit.
	MaxTotal int

	// KeepIDs is the minimum time for which the ID of a message is remembered after its Send. 0 =
	// DefaultKeepIDs.
	KeepIDs time.Duration

	// KeepDead is how long dead letters are kept. 0 = DefaultKeepDead.
	KeepDead time.Duration

	// SendWait bounds how long a Send waits for another transaction that sent to its entity. 0 =
	// DefaultSendWait. If it is shorter than the server's deadlock_timeout, deadlocks are not
	// detected.
	SendWait time.Duration

	// Finish is how long running turns may continue after the context of Serve has ended. After that,
	// their contexts end. 0 = DefaultFinish; negative = at once.
	Finish time.Duration

	// Node names this process in errors and tables. "" = the host's name with a random suffix. Serve adds
	// a random part of its own.
	Node string

	// Observer receives what happens to turns. The zero value has no functions.
	Observer Observer

	// Logger receives events that could otherwise go unnoticed: failed looks and turns. nil =
	// discard.
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
	c.Logger = background.Logger(c.Logger)
	return c, nil
}

// longest limits the times of a Config.
const longest = 10 * 365 * 24 * time.Hour
