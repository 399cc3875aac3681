package turns

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/txguard"
)

// The conditions that this package reports.
var (
	// ErrBusy: the entity already has a message or a turn, and the mailbox refuses more
	// (Config.RefuseBusy).
	ErrBusy = errors.New("turns: entity is busy")
	// ErrLimit: a message is too large, or too many wait. See LimitError.
	ErrLimit = errors.New("turns: limit reached")
	// ErrTimeout: another transaction that sent to the entity did not end in time. See TimeoutError.
	ErrTimeout = errors.New("turns: timed out waiting for another sender")
	// ErrDeadlock: transactions sent to the same entities in different orders, and PostgreSQL ended this
	// one. Nothing was sent. Try the whole transaction again.
	ErrDeadlock = errors.New("turns: deadlock of senders")
	// ErrConflict: the transaction's snapshot is too old to decide about the message. Nothing was sent.
	// Try the whole transaction again.
	ErrConflict = errors.New("turns: transaction must be tried again")
	// ErrStale: the turn is not the current one of its entity, or a message is missing. See StaleError.
	ErrStale = errors.New("turns: turn is stale")
	// ErrInterrupted: somebody interrupted the turn. See InterruptedError.
	ErrInterrupted = errors.New("turns: turn was interrupted")
	// ErrShutdown is the cause with which a turn's context ends when its node shuts down.
	ErrShutdown = errors.New("turns: node shuts down")
	// ErrNotRunning: the entity has no running turn.
	ErrNotRunning = errors.New("turns: no turn is running")
	// ErrNotFound: there is no such dead letter.
	ErrNotFound = errors.New("turns: no such dead letter")
	// ErrInvalid: an argument is not valid, as the text says.
	ErrInvalid = errors.New("turns: invalid argument")
	// ErrNotReady: the schema or the mailbox is missing, or the role lacks rights.
	ErrNotReady = errors.New("turns: mailbox is not ready")
	// ErrNoTransaction: Send got a pool or a connection. Nothing was sent.
	ErrNoTransaction = session.ErrNoTransaction
)

// A TxEndedError reports that the function of a Commit ended the transaction itself.
type TxEndedError = txguard.TxEndedError

// A LimitError says which limit of the mailbox a message exceeds. It matches ErrLimit. Nothing was sent. The
// transaction stays unchanged.
type LimitError struct {
	Entity string
	What   string // "bytes" of a body, "depth" of an entity, "total" of the mailbox, or "entities" of a transaction
	Limit  string
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("turns: message for %s exceeds the limit of %s %s", legible.Quote(e.Entity, 100), e.Limit, e.What)
}

// Is reports whether target is ErrLimit.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

// A TimeoutError says that another transaction that sent to the entity did not end in time. It matches
// ErrTimeout. Nothing was sent. The transaction stays unchanged.
type TimeoutError struct {
	Entity string
	Waited time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("turns: another transaction has sent to %s and did not end within %v: send last in a transaction", legible.Quote(e.Entity, 100), e.Waited)
}

// Is reports whether target is ErrTimeout.
func (e *TimeoutError) Is(target error) bool { return target == ErrTimeout }

// A StaleError says that a turn is not the current one of its entity, or that one of its messages is missing. It
// matches ErrStale. Nothing was committed.
type StaleError struct {
	Entity string
	Token  int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("turns: turn of %s with token %d is stale: another turn began, a message is gone, or it was committed before", legible.Quote(e.Entity, 100), e.Token)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// An InterruptedError is the cause with which the context of an interrupted turn ends. It matches ErrInterrupted.
type InterruptedError struct{ Reason string }

func (e *InterruptedError) Error() string {
	return "turns: turn was interrupted: " + legible.Line(e.Reason)
}

// Is reports whether target is ErrInterrupted.
func (e *InterruptedError) Is(target error) bool { return target == ErrInterrupted }

// A PanicError has the value and the stack of a handler's panic. The Err of a TurnData wraps it.
type PanicError = background.PanicError

// failed converts the error of a statement.
func failed(err error) error {
	code := sqlstate.Of(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNoTransaction):
		return fmt.Errorf("turns: %w", err)
	case code == sqlstate.Deadlock:
		return fmt.Errorf("%w: %w", ErrDeadlock, err)
	case code == sqlstate.UniqueViolation, strings.HasPrefix(code, sqlstate.ClassRollback) && code != sqlstate.UnknownCompletion:
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case code == sqlstate.ReadOnly, code == sqlstate.FeatureNotSupported:
		return fmt.Errorf("%w: the server or the transaction is read-only: use the primary: %w", ErrNotReady, err)
	case code == sqlstate.UndefinedTable, code == sqlstate.InvalidSchema, code == sqlstate.UndefinedFunction, code == sqlstate.UndefinedColumn:
		return fmt.Errorf("%w: the schema %s is not there, or older: make it with Mailbox.Migrate, or turns.Schema in a migration: %w", ErrNotReady, schemaName, err)
	case code == sqlstate.ProtocolViolation:
		return fmt.Errorf("%w: the pooler refuses transactions, as in statement mode: connect to PostgreSQL directly, or through a pool in session or transaction mode: %w", ErrNotReady, err)
	case code == sqlstate.Privilege:
		return fmt.Errorf("%w: the role may not do that: see turns.Grants: %w", ErrNotReady, err)
	}
	return fmt.Errorf("turns: %w", err)
}
