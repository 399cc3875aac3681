package guardtest

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/namespace"
)

// options requires that InTx passes on the options of the transaction.
func options(a arena) {
	right := a.rights.Begin(a, "a")
	const look = "SELECT current_setting('transaction_isolation') || ' ' || current_setting('transaction_read_only')"
	var seen string
	for _, level := range levels {
		require.NoError(a, right.InTx(a.Context(), a.pool, pgx.TxOptions{IsoLevel: level}, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, look).Scan(&seen)
		}))
		assert.Equal(a, string(level)+" off", seen)
	}
	require.NoError(a, right.InSQLTx(a.Context(), a.db, &sql.TxOptions{Isolation: sql.LevelSerializable}, func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, look).Scan(&seen)
	}))
	assert.Equal(a, "serializable off", seen)
	require.NoError(a, right.InSQLTx(a.Context(), a.db, nil, writeSQL), "nil is the driver's defaults")
	assert.Equal(a, 1, a.written())
	ran := false
	a.requireReadOnly(right.InTx(a.Context(), a.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) error {
		ran = true
		return tx.QueryRow(ctx, look).Scan(&seen)
	}))
	assert.Equal(a, !a.ReadOnly, ran)
	a.requireReadOnly(right.InSQLTx(a.Context(), a.db, &sql.TxOptions{ReadOnly: true}, func(context.Context, *sql.Tx) error { return nil }))
	a.requireReadOnly(right.InTx(a.Context(), a.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY")
		return err
	})) // by the second guard
}

// requireReadOnly requires that a guard refused a read-only transaction, if it locks a row.
func (a arena) requireReadOnly(err error) {
	a.Helper()
	if a.ReadOnly {
		require.ErrorIs(a, err, txguard.ErrReadOnly)
		require.NotErrorIs(a, err, a.Ended, "it has not")
		require.ErrorContains(a, err, "begin it READ WRITE")
	} else {
		require.NoError(a, err)
	}
}

// A tx is a transaction of either driver.
type tx struct {
	exec             func(sql string) error
	commit, rollback func() error
}

func (t tx) write() error { return t.exec("INSERT INTO public.written VALUES ('x')") }

// inTx returns InTx of each driver, and the error that its driver has for a transaction that has ended.
func (a arena) inTx(right Right) map[error]func(ctx context.Context, fn func(tx) error) error {
	return map[error]func(context.Context, func(tx) error) error{
		pgx.ErrTxClosed: func(ctx context.Context, fn func(tx) error) error {
			return right.InTx(ctx, a.pool, pgx.TxOptions{}, func(ctx context.Context, t pgx.Tx) error {
				return fn(tx{
					func(sql string) error { _, err := t.Exec(ctx, sql); return err },
					func() error { return t.Commit(ctx) }, func() error { return t.Rollback(ctx) },
				})
			})
		},
		sql.ErrTxDone: func(ctx context.Context, fn func(tx) error) error {
			return right.InSQLTx(ctx, a.db, nil, func(ctx context.Context, t *sql.Tx) error {
				return fn(tx{func(sql string) error { _, err := t.ExecContext(ctx, sql); return err }, t.Commit, t.Rollback})
			})
		},
	}
}

// failures requires that InTx rolls back after errors, panics, and failed statements.
func failures(a arena) {
	right := a.rights.Begin(a, "a")
	drivers := a.inTx(right)
	for _, inTx := range drivers {
		require.ErrorIs(a, inTx(a.Context(), func(t tx) error { return errors.Join(t.write(), assert.AnError) }), assert.AnError)
		require.PanicsWithValue(a, "boo", func() {
			_ = inTx(a.Context(), func(t tx) error {
				require.NoError(a, t.write())
				panic("boo")
			})
		})
	}
	inTx := func(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
		return right.InTx(ctx, a.pool, pgx.TxOptions{}, fn)
	}
	require.Error(a, inTx(a.Context(), func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(a, write(ctx, tx))
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	}))
	ctx, cancel := context.WithCancelCause(a.Context())
	err := inTx(ctx, func(_ context.Context, tx pgx.Tx) error {
		cancel(assert.AnError)
		return write(a.Context(), tx)
	})
	require.ErrorIs(a, err, assert.AnError, "the context's cause")
	require.NotErrorIs(a, err, a.Ended, "the right lasts")
	require.Error(a, inTx(ctx, write), "it cannot even begin")
	assert.Zero(a, a.written())
	assert.Zero(a, a.pool.Stat().AcquiredConns())
	for _, inTx := range drivers {
		require.NoError(a, inTx(a.Context(), tx.write), "the control")
	}
	assert.Equal(a, 2, a.written())
	ended := a.over(a.rights, right)
	for _, inTx := range drivers {
		a.requireOneOf(inTx(a.Context(), func(tx) error { return errors.New("it ran") }), ended)
	}
}

// ends are what a function can do to its transaction. written is how many of the rows that it wrote before and
// after are there then.
var ends = []struct {
	sql     string
	written int
	ends    bool
}{
	{"COMMIT", 2, true},
	{"ROLLBACK", 1, true},
	{"COMMIT; BEGIN", 1, true},
	{"ROLLBACK; BEGIN", 0, true},
	{"COMMIT AND CHAIN", 1, true},
	{"ROLLBACK AND CHAIN", 0, true},
	{"BEGIN", 2, false},
	{"SAVEPOINT a; ROLLBACK TO a", 2, false},
	{"SET LOCAL work_mem = '1MB'", 2, false},
}

// endings requires that InTx notices that its function ended the transaction.
func endings(a arena) {
	right := a.rights.Begin(a, "a")
	for done, inTx := range a.inTx(right) {
		for _, c := range ends {
			err := inTx(a.Context(), func(t tx) error {
				require.NoError(a, t.write())
				require.NoError(a, t.exec(c.sql))
				return t.write()
			})
			if c.ends {
				require.ErrorAs(a, err, new(*txguard.TxEndedError), "%s, %v", c.sql, done)
			} else {
				require.NoError(a, err, "%s, %v", c.sql, done)
			}
			assert.Equal(a, c.written, a.written(), "%s, %v", c.sql, done)
			a.exec("DELETE FROM public.written")
		}
		for written, end := range []func(tx) error{func(t tx) error { return t.rollback() }, func(t tx) error { return t.commit() }} {
			err := inTx(a.Context(), func(t tx) error { return errors.Join(t.write(), end(t)) })
			require.ErrorAs(a, err, new(*txguard.TxEndedError))
			require.ErrorIs(a, err, done)
			assert.Equal(a, written, a.written(), "what was committed stays")
		}
		require.NoError(a, inTx(a.Context(), tx.write), "the connections are as they were")
		a.exec("DELETE FROM public.written")
	}
	assert.Zero(a, a.pool.Stat().AcquiredConns())

	// A transaction that takes the place of InTx's own on its connection.
	conn, err := a.pool.Acquire(a.Context())
	require.NoError(a, err)
	defer conn.Release()
	err = right.InTx(a.Context(), conn, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "ROLLBACK")
		require.NoError(a, err)
		return right.InTx(ctx, conn, pgx.TxOptions{}, write)
	})
	require.ErrorAs(a, err, new(*txguard.TxEndedError))
	assert.Equal(a, 1, a.written(), "the other's")
}

// between ends the right between the two guards of InTx. Nobody gets the next one before the transaction has
// ended, and its work is not committed.
func between(a arena) {
	for how, end := range a.rights.Begin(a, "a").Ends {
		if end.Waits {
			continue
		}
		a.each(how, func(a arena) {
			for _, level := range levels {
				right := a.rights.Begin(a, "a")
				err := right.InTx(a.Context(), a.pool, pgx.TxOptions{IsoLevel: level}, func(ctx context.Context, tx pgx.Tx) error {
					right.Ends[how].Do(a)
					a.rights.Blocked(a, "b")
					return write(ctx, tx)
				})
				if a.Lasts {
					require.NoError(a, err, "before the next right begins")
					a.exec("DELETE FROM public.written")
				} else if !isSnapshotTooOld(level, err) {
					a.requireOneOf(err, a.errorsAfter(right.Ends[how]), level)
				}
				assert.Zero(a, a.written())
				a.rights.Begin(a, "b").end(a)
			}
			// What the function committed itself was guarded until then; what followed was not.
			right := a.rights.Begin(a, "a")
			err := right.InTx(a.Context(), a.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
				right.Ends[how].Do(a)
				a.rights.Blocked(a, "b")
				require.NoError(a, write(ctx, tx))
				_, err := tx.Exec(ctx, "COMMIT")
				require.NoError(a, err)
				a.rights.Begin(a, "b")
				return write(ctx, tx) // the control: stale, and nobody can refuse it
			})
			require.ErrorAs(a, err, new(*txguard.TxEndedError))
			assert.Equal(a, 2, a.written())
		})
	}
}

// nested requires that guards, savepoints and locks of the function look like no end of its transaction.
func nested(a arena) {
	right := a.rights.Begin(a, "a")
	require.NoError(a, right.InTx(a.Context(), a.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(a, right.Guard(ctx, tx))
		for range 2 {
			savepoint, err := tx.Begin(ctx)
			require.NoError(a, err)
			require.NoError(a, errors.Join(right.Guard(ctx, savepoint), write(ctx, savepoint), savepoint.Rollback(ctx)))
		}
		return errors.Join(advisory.LockTx(ctx, tx, advisory.TxOptions{}, namespace.Pair(1, 42)), write(ctx, tx))
	}))
	err := right.InTx(a.Context(), a.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "ROLLBACK; BEGIN")
		require.NoError(a, err)
		require.NoError(a, right.Guard(ctx, tx), "the other transaction has its own")
		return write(ctx, tx)
	})
	require.ErrorAs(a, err, new(*txguard.TxEndedError))
	assert.Equal(a, 1, a.written())
}
