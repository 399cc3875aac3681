package turns

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// A State says what has happened to a message.
type State string

// The states of a message.
const (
	Waiting State = "waiting" // for its turn, or for the next attempt
	Running State = "running" // a turn has it, as the first of its messages
	Done    State = "done"    // a turn committed it
	Dead    State = "dead"    // it is a dead letter

	// Unknown: the message is gone, and the mailbox does not know why. There are four possible reasons: it
	// has no ID and was committed, its ID is no longer kept, it was skipped or purged, or the transaction
	// that sent it did not commit.
	Unknown State = "unknown"
)

// An Outcome describes what has happened to a message.
type Outcome struct {
	State    State
	Attempts int    // without a commit, of the first message that waits and of dead letters
	Error    string // of the last attempt without a commit; "" = none
	Value    []byte // Done: what the turn's commit stored; see Turn.SetValue
}

// Look returns the current Outcome of a message.
func (m *Mailbox) Look(ctx context.Context, ticket Ticket) (Outcome, error) {
	var o Outcome
	var state string
	err := m.config.Pool.QueryRow(ctx, `SELECT state, attempts, error, value FROM pglatch_turns.outcome($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8, $4::pg_catalog.text)`,
		m.config.Name, ticket.Entity, ticket.Number, ticket.ID).Scan(&state, &o.Attempts, &o.Error, &o.Value)
	o.State = State(state)
	return o, failed(err)
}

const (
	firstWait   = 5 * time.Millisecond
	longestWait = time.Second
)

// Wait waits until a message is Done, Dead or Unknown, and returns the Outcome. If ctx ends before that, Wait
// returns the last Outcome that it saw, and the cause. It looks at growing intervals, up to a second.
func (m *Mailbox) Wait(ctx context.Context, ticket Ticket) (o Outcome, err error) {
	for looks := 0; ; looks++ {
		seen, err := m.Look(ctx, ticket)
		if ctx.Err() != nil {
			return o, context.Cause(ctx)
		}
		if err != nil {
			return o, err
		}
		if o = seen; o.State != Waiting && o.State != Running {
			return o, nil
		}
		if err := pause.For(ctx, pause.Backoff(looks, firstWait, longestWait)); err != nil {
			return o, err
		}
	}
}
