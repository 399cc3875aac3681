package turns

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/namespace"
)

// A Mailbox contains the messages of all entities under one name. It is safe for concurrent use.
type Mailbox struct{ config Config }

// Open returns a mailbox without connecting. Migrate makes its schema. The error is a *ConfigError, or the cause of
// ctx if it has ended.
func Open(ctx context.Context, config Config) (*Mailbox, error) {
	config, err := config.validated()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return &Mailbox{config}, nil
}

// Name returns the mailbox's name.
func (m *Mailbox) Name() string { return m.config.Name }

// entityOf returns the text under which an entity's messages are kept.
func (m *Mailbox) entityOf(key namespace.Key) (string, error) {
	if key.Namespace() != m.config.Namespace || key.Entity() == "" {
		return "", fmt.Errorf("%w: %s is no entity of the namespace %s", ErrInvalid, key, m.config.Namespace.Name())
	}
	return key.Entity(), nil
}

// All of the schema's functions run in READ COMMITTED, in which each of their statements has a new snapshot.
const (
	beginSQL  = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	commitSQL = "COMMIT"
)

// inTx runs one statement in a transaction, and types its error. It is one message to the server. If ctx ends before the
// answer, the transaction may have been committed.
func (m *Mailbox) inTx(ctx context.Context, read func(rows pgx.Rows) error, sql string, args ...any) error {
	var batch pgx.Batch
	batch.Queue(beginSQL)
	batch.Queue(sql, append([]any{m.config.Name}, args...)...).Query(read)
	batch.Queue(commitSQL)
	return failed(m.config.Pool.SendBatch(ctx, &batch).Close()) // after an error, the pool closes the connection
}

// ask is inTx for a statement that returns one value.
func ask[T any](ctx context.Context, m *Mailbox, sql string, args ...any) (value T, err error) {
	err = m.inTx(ctx, func(rows pgx.Rows) (err error) {
		value, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
		return err
	}, sql, args...)
	return value, err
}

// exec calls a function of the schema whose answer does not matter.
func (m *Mailbox) exec(ctx context.Context, sql string, args ...any) error {
	return m.inTx(ctx, func(rows pgx.Rows) error {
		rows.Close()
		return rows.Err()
	}, sql, args...)
}

// interval formats a duration so that PostgreSQL can read it, whatever its settings are.
func interval(d time.Duration) string {
	return fmt.Sprintf("%d.%06d seconds", d/time.Second, d%time.Second/time.Microsecond)
}
