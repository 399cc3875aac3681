package guardtest

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/statements"
	"github.com/pglatch/pglatch/internal/test/pgtest/txshapes"
)

type commandTag = pgconn.CommandTag

// inEveryMode runs a part of an attack with each protocol of pgx.
func (a arena) inEveryMode(part func(a arena, base txshapes.Base)) {
	a.Helper()
	txshapes.InEveryMode(a.T, pgtest.DSN, func(base txshapes.Base, dsn string) {
		part(newArenaIn(base.T, a.Guard, dsn), base)
	})
}

// noTransactions passes values that have the methods of a transaction, and nil.
func noTransactions(a arena) {
	a.inEveryMode(func(a arena, base txshapes.Base) {
		right := a.rights.Begin(a, "a")
		alone := a.locks()
		base.Each(txshapes.None, func(t *testing.T, _ string, tx any) {
			t.Helper()
			err := right.guard(t.Context(), tx)
			require.ErrorIs(t, err, session.ErrNoTransaction)
			require.ErrorContains(t, err, "pass a transaction")
			require.NotErrorIs(t, err, a.Ended, "that is not known")
			assert.Equal(t, alone, a.locks(), "nothing is held")
		})
	})
	right := a.rights.Begin(a, "a")
	for name, err := range map[string]error{
		"a nil transaction of pgx":          right.Guard(a.Context(), nil),
		"a nil transaction of database/sql": right.GuardSQL(a.Context(), nil),
		"a nil *sql.Tx":                     right.GuardSQL(a.Context(), (*sql.Tx)(nil)),
		"a nil *pgx.Conn":                   right.Guard(a.Context(), (*pgx.Conn)(nil)),
	} {
		require.ErrorIs(a, err, session.ErrNoTransaction, name)
		require.ErrorContains(a, err, "the transaction is nil", name)
	}
}

// transactions guards transactions of all drivers and libraries, and refuses them when the right has ended.
func transactions(a arena) {
	a.inEveryMode(func(a arena, base txshapes.Base) {
		begun := map[string]func(txshapes.Base) any{}
		for name, shape := range txshapes.Begun {
			if name != txshapes.ReadOnly {
				begun[name] = shape
			}
		}
		right := a.rights.Begin(a, "a")
		alone := a.locks()
		base.Each(begun, func(t *testing.T, _ string, tx any) {
			t.Helper()
			for range 2 { // a second guard finds its own mark
				require.NoError(t, right.guard(t.Context(), tx))
				assert.Equal(t, alone+1, a.locks(), "the guard is held")
			}
			require.NoError(t, txshapes.Exec(t.Context(), tx, "ROLLBACK"))
			assert.Equal(t, alone, a.locks(), "and given back")
		})
		want := a.over(a.rights, right)
		base.Each(begun, func(t *testing.T, _ string, tx any) {
			t.Helper()
			a := a
			a.T = t
			a.requireRefused(tx, right.guard(t.Context(), tx), want...)
		})
	})
}

// A counter counts the statements of a connection.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// counts counts the round trips of a guard, and of InTx.
func counts(a arena) {
	config, err := pgxpool.ParseConfig(a.dsn)
	require.NoError(a, err)
	count := &counter{}
	config.ConnConfig.Tracer = count
	pool, err := pgxpool.NewWithConfig(a.Context(), config)
	require.NoError(a, err)
	a.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	a.Cleanup(func() { _ = db.Close() })
	right := a.rights.Begin(a, "a")

	require.NoError(a, right.InTx(a.Context(), pool, pgx.TxOptions{}, func(context.Context, pgx.Tx) error { return nil }))
	assert.EqualValues(a, 4, count.n.Swap(0), "BEGIN, guard, guard, COMMIT")
	tx, err := pool.Begin(a.Context())
	require.NoError(a, err)
	require.NoError(a, right.Guard(a.Context(), tx))
	require.NoError(a, tx.Commit(a.Context()))
	assert.EqualValues(a, 4, count.n.Swap(0), "BEGIN, guard, its outcome, COMMIT")
	sqlTx, err := db.BeginTx(a.Context(), nil)
	require.NoError(a, err)
	require.NoError(a, right.GuardSQL(a.Context(), sqlTx))
	require.NoError(a, sqlTx.Commit())
	assert.EqualValues(a, 4, count.n.Swap(0), "BEGIN, guard, its outcome, COMMIT")
}

// texts requires that the guards of different rights are the same statements. Otherwise each is an entry of
// pg_stat_statements, and a statement that drivers prepare.
func texts(a arena) {
	const rights = 25
	most := 10 + a.Names
	counter := statements.Start(a.T).Count(a.T)
	a = newArenaIn(a.T, a.Guard, counter.DSN)
	var all []Right
	for i := range rights {
		all = append(all, a.Open(a, a.dsn, i+1).Begin(a, fmt.Sprint("holder ", i)))
	}
	a.db.SetMaxOpenConns(1)
	conn, err := a.pool.Acquire(a.Context())
	require.NoError(a, err)
	defer conn.Release()
	counter.Reset(a.T)
	for _, right := range all {
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			if right.InSQLTx != nil {
				require.NoError(a, right.InSQLTx(a.Context(), a.db, nil, func(ctx context.Context, tx *sql.Tx) error { return right.GuardSQL(ctx, tx) }))
			}
			_, err := conn.Exec(a.Context(), "BEGIN")
			require.NoError(a, err)
			require.NoError(a, right.Guard(a.Context(), conn))
			_, err = conn.Exec(a.Context(), end)
			require.NoError(a, err)
		}
	}
	sqlConn, err := a.db.Conn(a.Context())
	require.NoError(a, err)
	a.Cleanup(func() { _ = sqlConn.Close() })
	require.NoError(a, sqlConn.Raw(func(driver any) error {
		assert.LessOrEqual(a, statements.Prepared(a.T, driver.(*stdlib.Conn).Conn()), 3)
		return nil
	}))
	if n, ok := counter.Entries(a.T); ok {
		require.GreaterOrEqual(a, n, 3, "they are counted")
		assert.LessOrEqual(a, n, most)
	}
	guards := counter.Texts(a.T)
	require.GreaterOrEqual(a, len(guards), 3, "the log was read")
	assert.LessOrEqual(a, len(guards), most, "%v", guards)
}
