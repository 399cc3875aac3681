package turns

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/namespace"
)

// A Mailbox has the messages of all entities under one name. It is safe for concurrent use.
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

// inTx runs fn in a READ COMMITTED transaction, in which each statement has a new snapshot, and types its error.
func (m *Mailbox) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, m.config.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, fn)
	if errors.Is(err, ErrNotReady) {
		return err
	}
	return failed(err)
}

// call calls a function of the schema that answers whether it did something.
func (m *Mailbox) call(ctx context.Context, sql string, args ...any) (did bool, err error) {
	err = m.inTx(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sql, append([]any{m.config.Name}, args...)...).Scan(&did)
	})
	return did, err
}

// exec calls a function of the schema.
func (m *Mailbox) exec(ctx context.Context, sql string, args ...any) error {
	return m.inTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, append([]any{m.config.Name}, args...)...)
		return err
	})
}

// interval is a duration as PostgreSQL reads it, whatever its settings are.
func interval(d time.Duration) string {
	return fmt.Sprintf("%d.%06d seconds", d/time.Second, d%time.Second/time.Microsecond)
}
