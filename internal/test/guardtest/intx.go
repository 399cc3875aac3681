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

// failures requires that InTx rolls back after errors, panics, and failed statements.
func failures(a arena) {
	right := a.rights.Begin(a, "a")
	inTx := func(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
		return right.InTx(ctx, a.pool, pgx.TxOptions{}, fn)
	}
	require.ErrorIs(a, inTx(a.Context(), func(ctx context.Context, tx pgx.Tx) error { return errors.Join(write(ctx, tx), assert.AnError) }), assert.AnError)
	require.ErrorIs(a, right.InSQLTx(a.Context(), a.db, nil, func(ctx context.Context, tx *sql.Tx) error { return errors.Join(writeSQL(ctx, tx), assert.AnError) }), assert.AnError)
	require.PanicsWithValue(a, "boo", func() {
		_ = inTx(a.Context(), func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(a, write(ctx, tx))
			panic("boo")
		})
	})
	require.PanicsWithValue(a, "boo", func() {
		_ = right.InSQLTx(a.Context(), a.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(a, writeSQL(ctx, tx))
			panic("boo")
		})
	})
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
	require.NoError(a, inTx(a.Context(), write), "the control")
	require.NoError(a, right.InSQLTx(a.Context(), a.db, nil, writeSQL), "the control")
	assert.Equal(a, 2, a.written())
	ended := a.over(a.rights, right)
	ran := func() error { return errors.New("it ran") }
	a.requireOneOf(inTx(a.Context(), func(context.Context, pgx.Tx) error { return ran() }), ended)
	a.requireOneOf(right.InSQLTx(a.Context(), a.db, nil, func(context.Context, *sql.Tx) error { return ran() }), ended)
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
	inTx := func(fn func(context.Context, pgx.Tx) error) error {
		return right.InTx(a.Context(), a.pool, pgx.TxOptions{}, fn)
	}
	for _, c := range ends {
		for driver, inTx := range map[string]func() error{
			"pgx": func() error {
				return inTx(func(ctx context.Context, tx pgx.Tx) error {
					require.NoError(a, write(ctx, tx))
					_, err := tx.Exec(ctx, c.sql)
					require.NoError(a, err)
					return write(ctx, tx)
				})
			},
			"database/sql": func() error {
				return right.InSQLTx(a.Context(), a.db, nil, func(ctx context.Context, tx *sql.Tx) error {
					require.NoError(a, writeSQL(ctx, tx))
					_, err := tx.ExecContext(ctx, c.sql)
					require.NoError(a, err)
					return writeSQL(ctx, tx)
				})
			},
		} {
			err := inTx()
			if c.ends {
				require.ErrorAs(a, err, new(*txguard.TxEndedError), "%s by %s", c.sql, driver)
			} else {
				require.NoError(a, err, "%s by %s", c.sql, driver)
			}
			assert.Equal(a, c.written, a.written(), "%s by %s", c.sql, driver)
			a.exec("DELETE FROM public.written")
		}
	}
	for _, commit := range []bool{true, false} {
		err := inTx(func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(a, write(ctx, tx))
			if commit {
				return tx.Commit(ctx)
			}
			return tx.Rollback(ctx)
		})
		require.ErrorAs(a, err, new(*txguard.TxEndedError))
		require.ErrorIs(a, err, pgx.ErrTxClosed)
		err = right.InSQLTx(a.Context(), a.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(a, writeSQL(ctx, tx))
			if commit {
				return tx.Commit()
			}
			return tx.Rollback()
		})
		require.ErrorAs(a, err, new(*txguard.TxEndedError))
		require.ErrorIs(a, err, sql.ErrTxDone)
	}
	assert.Equal(a, 2, a.written(), "what was committed stays")
	assert.Zero(a, a.pool.Stat().AcquiredConns())
	require.NoError(a, inTx(write), "the connections are as they were")

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
	assert.Equal(a, 4, a.written(), "the other's")
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
