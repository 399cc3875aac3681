package turns

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/namespace"
)

// A Handler handles one turn. Its context carries the lock of the entity, and ends with a cause: *InterruptedError,
// ErrShutdown, or an error that matches advisory.ErrLost.
//
// If it returns nil without a Commit, the turn's messages are consumed. If it returns an error, panics or ends
// its goroutine before a Commit, the messages stay, and the entity has another turn after a pause.
type Handler func(ctx context.Context, t *Turn) error

// A Turn is the right to handle some messages of one entity. It is safe for concurrent use.
type Turn struct {
	m      *Mailbox
	key    namespace.Key
	node   string
	claim  claimed
	taken  int // messages, by the claim
	cancel context.CancelCauseFunc

	mu         sync.Mutex
	messages   []Message
	value      []byte
	committing bool
	committed  bool
}

// A claimed is an entity whose turn this node has.
type claimed struct {
	Entity    string
	Token     int64
	Attempts  int
	After     int64
	LastError string
	Ready     int64 // since when, by the server's clock, in microseconds since 1970
}

// Entity returns the entity's key, whose lock the turn holds.
func (t *Turn) Entity() namespace.Key { return t.key }

// Attempt returns 1 for the first attempt since the entity's last commit.
func (t *Turn) Attempt() int { return t.claim.Attempts }

// Token returns the number of the claim. It is greater than those of all earlier turns of the mailbox.
func (t *Turn) Token() int64 { return t.claim.Token }

// Messages returns the messages that the turn has taken, in order.
func (t *Turn) Messages() []Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.messages)
}

// SetValue sets what the commit stores for Wait, for each of the turn's messages that has an ID.
func (t *Turn) SetValue(value []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.value = value
}

// moreMost limits the messages of one call of More.
const moreMost = 1000

// More takes the messages that were sent to the entity since the turn's last message, at most 1000, and
// returns them. They then belong to the turn, and its commit consumes them. If the turn does not commit, they
// are delivered again. Messages that More does not take are for the next turn.
func (t *Turn) More(ctx context.Context) ([]Message, error) {
	t.mu.Lock()
	after, closed := t.last(), t.committing || t.committed
	t.mu.Unlock()
	if closed {
		return nil, t.stale()
	}
	found, err := t.m.take(ctx, []string{t.claim.Entity}, []int64{after}, []int64{moreMost})
	if err != nil {
		return nil, failed(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.committing || t.committed || t.last() != after {
		return nil, nil // another call took them
	}
	more := found[t.claim.Entity].messages
	t.messages = append(t.messages, more...)
	return more, nil
}

// last is the number of the last message that the turn took. The caller holds mu.
func (t *Turn) last() int64 {
	if len(t.messages) == 0 {
		return t.claim.After
	}
	return t.messages[len(t.messages)-1].Number
}

func (t *Turn) stale() error { return &StaleError{t.claim.Entity, t.claim.Token} }

// commitIdle is how long the server waits for the next statement of a commit before it ends the session: a
// process that is stopped does not lock the row of its entity for longer.
const commitIdle = 15 * time.Second

// commitGuards check the token before fn runs, and consume the messages after it. Numbers and value are text, as all
// drivers take it.
var commitGuards = txguard.NewClosing(`WHEN NOT pglatch_turns.is_current($2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.text::pg_catalog.int8) THEN '`+txguard.Refusal+`stale'`, 5,
	`WHEN NOT pglatch_turns.finish($2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text, $5::pg_catalog.text::pg_catalog.int8, $6::pg_catalog.text::pg_catalog.int8[],
		CASE WHEN $7::pg_catalog.text OPERATOR(pg_catalog.<>) '-' THEN pg_catalog.decode($7::pg_catalog.text, 'hex') END) THEN '`+txguard.Refusal+`stale'`, 7)

func (t *Turn) guard() txguard.Guard {
	limits := txguard.Limits{Idle: commitIdle}.Args()
	turn := []any{t.m.config.Name, t.node, t.claim.Entity, strconv.FormatInt(t.claim.Token, 10)}
	return txguard.Guard{
		Package: "turns", Right: fmt.Sprintf("%s with token %d", t.key, t.claim.Token), Statements: commitGuards,
		Args: slices.Concat(turn, limits),
		Closing: func() []any {
			t.mu.Lock()
			defer t.mu.Unlock()
			return slices.Concat(turn, []any{arrayOf(t.messages), hexOrNone(t.value)}, limits)
		},
		Failed: func(err error) error {
			if _, ok := errors.AsType[*txguard.RefusedError](err); ok {
				return t.stale()
			}
			return failed(err)
		},
	}
}

// Commit runs fn in a READ COMMITTED transaction that also consumes the turn's messages. It commits only if this
// turn is still the current one, and all its messages still exist. Otherwise nothing happens, and the error is a
// *StaleError. nil = no fn.
//
// After a Commit that returned nil, the entity is ready for its next turn, which begins when the handler has
// returned. fn must neither commit nor roll back tx: if it does, the error is a *TxEndedError. If fn sends
// nothing for 15 seconds, the server ends the session. So do long work before the Commit. Any other error comes
// from fn, the server or the commit. After an error of fn, another Commit may be tried. If the connection failed
// during the commit, it can have taken effect: return the error, and the next turn gets the messages that are
// left.
//
// To commit in a turn whose context has ended, for example in an interrupted one, use context.WithoutCancel.
func (t *Turn) Commit(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return t.commit(func() error {
		return t.guard().InTx(ctx, t.m.config.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(_ context.Context, tx pgx.Tx) error {
			if fn == nil {
				return nil
			}
			return fn(tx)
		})
	})
}

// CommitSQL is Commit for a database/sql pool on the mailbox's database.
func (t *Turn) CommitSQL(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	return t.commit(func() error {
		return t.guard().InSQLTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(_ context.Context, tx *sql.Tx) error {
			if fn == nil {
				return nil
			}
			return fn(tx)
		})
	})
}

// commit makes sure that only one commit of the turn is under way at a time, and that none follows
// a successful one.
func (t *Turn) commit(run func() error) (err error) {
	t.mu.Lock()
	if t.committing || t.committed {
		t.mu.Unlock()
		return t.stale()
	}
	t.committing = true
	t.mu.Unlock()
	returned := false
	defer func() { // a panic of fn, too
		t.mu.Lock()
		defer t.mu.Unlock()
		t.committing, t.committed = false, returned && err == nil
	}()
	err = run()
	returned = true
	return err
}

// done reports whether the turn was committed.
func (t *Turn) done() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.committed
}
