//go:build integration

package seams

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// withMailbox gives use a mailbox, and the pool that it is on.
func withMailbox(locker *advisory.Locker, use func(ctx context.Context, box *turns.Mailbox, pool *pgxpool.Pool) error) useFunc {
	return func(ctx context.Context, _ *testing.T, s site) error {
		config, err := pgxpool.ParseConfig(s.dsn)
		if err != nil {
			return err
		}
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return err
		}
		defer pool.Close()
		box, err := turns.Open(ctx, turns.Config{Pool: pool, Name: "seams", Namespace: agents, Locker: locker, Batch: 100})
		if err != nil {
			return err
		}
		return use(ctx, box, pool)
	}
}

// entity has no messages of other entries.
const entity = 77

// useTurns sends, serves, and looks after the mailbox.
func useTurns(ctx context.Context, t *testing.T, s site) error {
	t.Helper()
	locker, err := open(ctx, s.dsn)
	if err != nil {
		return err
	}
	defer locker.Close()
	db := openSQL(t, s)
	return withMailbox(locker, func(ctx context.Context, box *turns.Mailbox, pool *pgxpool.Pool) error {
		_, err := box.Purge(ctx, agents.ID(entity))
		if err != nil {
			return err
		}
		var tickets []turns.Ticket
		writing := pgx.TxOptions{AccessMode: pgx.ReadWrite}
		err = pgx.BeginTxFunc(ctx, pool, writing, func(tx pgx.Tx) (err error) {
			envelopes := []turns.Envelope{{Entity: agents.ID(entity), Message: turns.Message{ID: time.Now().String(), Body: []byte("1")}}}
			tickets, err = box.SendMany(ctx, tx, envelopes)
			return err
		})
		if err != nil {
			return err
		}
		serving, stop := context.WithCancel(ctx)
		served := make(chan error, 1)
		go func() {
			served <- box.Serve(serving, func(ctx context.Context, turn *turns.Turn) error {
				_, err := turn.More(ctx)
				turn.SetValue([]byte("done"))
				return errors.Join(err, turn.Commit(ctx, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT 1")
					return err
				}))
			})
		}()
		outcome, err := box.Wait(ctx, tickets[0])
		stop()
		if err := errors.Join(err, <-served); err != nil {
			return err
		}
		assert.Equal(t, turns.Outcome{State: turns.Done, Value: []byte("done")}, outcome)
		_, looked := box.Look(ctx, tickets[0])
		_, counted := box.Stats(ctx)
		_, listed := box.DeadLetters(ctx, namespace.Key{}, 0, 10)
		_, named := turns.Names(ctx, pool)
		_, shown := box.Entities(ctx, turns.EntityReady, 10)
		_, one := box.Entity(ctx, agents.ID(entity))
		_, waiting := box.Messages(ctx, agents.ID(entity), 0, 10)
		assert.ErrorIs(t, box.Interrupt(ctx, agents.ID(entity), "stop"), turns.ErrNotRunning)
		assert.ErrorIs(t, box.Retry(ctx, 1<<40), turns.ErrNotFound)
		assert.ErrorIs(t, box.Skip(ctx, 1<<40), turns.ErrNotFound)
		// In the transaction of database/sql, whose role can be read-only by default.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "SET TRANSACTION READ WRITE"); err == nil {
			_, err = box.SendManySQL(ctx, tx, []turns.Envelope{{Entity: agents.ID(entity)}})
			assert.NoError(t, err)
		}
		return errors.Join(looked, counted, listed, named, shown, one, waiting, tx.Rollback())
	})(ctx, t, s)
}

// sender is a mailbox that sends only in transactions of others.
func sender(ctx context.Context) (*turns.Mailbox, error) {
	pool, err := pgxpool.New(ctx, "postgres://localhost/none") // it never connects
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return turns.Open(ctx, turns.Config{Pool: pool, Name: "seams", Namespace: agents})
}

func useTurnsTx(ctx context.Context, tx pgx.Tx) error {
	box, err := sender(ctx)
	if err != nil {
		return err
	}
	_, err = box.Send(ctx, tx, agents.ID(1), turns.Message{ID: "m1", Body: []byte("x")})
	return err
}

func useTurnsSQLTx(ctx context.Context, tx *sql.Tx) error {
	box, err := sender(ctx)
	if err != nil {
		return err
	}
	_, err = box.SendSQL(ctx, tx, agents.ID(2), turns.Message{Body: []byte("x")})
	return err
}
