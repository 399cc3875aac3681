package txguard

import (
	"errors"
	"fmt"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// ErrReadOnly means that a guard that locks a row got a read-only transaction, which is aborted.
var ErrReadOnly = errors.New("the transaction is read-only, and the guard locks a row: begin it READ WRITE, on the primary; one that writes nothing needs no guard")

// ReadOnly returns an error that matches ErrReadOnly too, if the server refused to write.
func ReadOnly(err error) error {
	if sqlstate.Of(err) == sqlstate.ReadOnly {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// A RefusedError means that a guard refused a transaction, which is aborted.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// A TxEndedError reports that the function run by InTx ended the transaction: by its own COMMIT, ROLLBACK or
// PREPARE TRANSACTION, or by the driver's.
//
// So some of the work may be done, and some not:
//
//   - Writes before a COMMIT are committed, while the right lasted: the first guard held until then.
//   - Later writes outside a transaction were committed statement by statement and unguarded. A successor may
//     have had the right by then.
//   - Writes in a transaction that the function began and left open are rolled back.
//
// A BEGIN inside the transaction is not an error. It has no effect except a warning from the server.
type TxEndedError struct {
	Package string // "leader" or "lease"
	Right   string // "1:100 in term 1.1", "shard 7 of tenant=7 in term 1.1", or "x with token 3"
	Cause   error  // the driver's error, if it noticed; else nil
}

func (e *TxEndedError) Error() string {
	text := fmt.Sprintf("%s: guarded transaction of %s: it was ended before its function returned, and what followed was not guarded: "+
		"leave the commit to InTx, and return an error for a rollback", e.Package, e.Right)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *TxEndedError) Unwrap() error { return e.Cause }
