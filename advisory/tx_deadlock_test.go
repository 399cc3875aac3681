package advisory_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// circle has two transactions lock a key each, and then the other's. It returns them, and what
// the calls return.
func circle(t *testing.T, a, b pgx.Tx, options advisory.TxOptions) (ofA, ofB <-chan error) {
	t.Helper()
	require.NoError(t, advisory.LockTx(t.Context(), a, advisory.TxOptions{}, agents.ID(1)))
	require.NoError(t, advisory.LockTx(t.Context(), b, advisory.TxOptions{}, agents.ID(2)))
	ofA = started(func() error { return advisory.LockTx(t.Context(), a, options, agents.ID(2)) })
	ofB = started(func() error { return advisory.LockTx(t.Context(), b, options, agents.ID(1)) })
	return ofA, ofB
}

// first returns the first end of two calls, and the other call.
func first(a, b <-chan error) (isA bool, other <-chan error, err error) {
	select {
	case err := <-a:
		return true, b, err
	case err := <-b:
		return false, a, err
	}
}

func TestACircleOfTransactionsEndsAndIsNamed(t *testing.T) {
	t.Parallel()
	work := dbtest.Pool(t, pgtest.DSN(t))
	a, b := begin(t, work), begin(t, work)
	ofA, ofB := circle(t, a, b, advisory.TxOptions{Wait: advisory.NoTimeout})
	isA, other, err := first(ofA, ofB)
	victim, survivor, keys := a, b, []namespace.Key{agents.ID(2), agents.ID(1)}
	if !isA {
		victim, survivor, keys = b, a, []namespace.Key{agents.ID(1), agents.ID(2)}
	}
	var deadlock *advisory.DeadlockError
	require.ErrorAs(t, err, &deadlock)
	require.Equal(t, keys, deadlock.Cycle, "all keys have their names")
	require.ErrorContains(t, err, "backend "+strconv.Itoa(int(victim.Conn().PgConn().PID()))+", this transaction, waits for lock agent/")
	require.ErrorContains(t, err, "in its way is backend "+strconv.Itoa(int(survivor.Conn().PgConn().PID())))
	require.ErrorContains(t, err, "which waits for lock "+keys[1].String())

	_, err = victim.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err, "the transaction is not aborted")
	requireWaiting(t, other, "the other transaction")
	require.NoError(t, victim.Rollback(t.Context()))
	require.NoError(t, <-other)
	require.NoError(t, survivor.Commit(t.Context()))
	require.Zero(t, locks(t, work, true))
}

// The circle is closed by calls that have other keys, and other namespaces, than the calls that took the locks.
func TestACircleIsNamedByTheKeysOfEarlierCalls(t *testing.T) {
	t.Parallel()
	work := dbtest.Pool(t, pgtest.DSN(t))
	a, b, c := begin(t, work), begin(t, work), begin(t, work)
	text := func(number int, name, entity string) namespace.Key {
		key, err := namespace.Must(number, name).Text(entity)
		require.NoError(t, err)
		return key
	}
	order, stock, known := text(4711, "order", "the first"), text(4712, "stock", "the second"), agents.ID(3)
	unknown := text(4713, "invoice", "no call had this")
	require.NoError(t, advisory.LockTx(t.Context(), a, advisory.TxOptions{}, order))
	neighbor := namespace.Pair(int32(unknown.Tag().ClassID), int32(unknown.Tag().ObjID+1024)) // has its place in the memory
	require.NoError(t, advisory.LockTx(t.Context(), b, advisory.TxOptions{}, stock, neighbor))
	_, err := c.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", int64(unknown.Tag().ClassID)<<32|int64(unknown.Tag().ObjID))
	require.NoError(t, err)
	for tx, patience := range map[pgx.Tx]string{a: "100ms", b: "1h", c: "1h"} { // a looks first
		_, err := tx.Exec(t.Context(), "SET LOCAL deadlock_timeout = '"+patience+"'")
		require.NoError(t, err)
	}
	raw := started(func() error { // b waits for c's lock, and c for a's
		_, err := b.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", int64(unknown.Tag().ClassID)<<32|int64(unknown.Tag().ObjID))
		return err
	})
	last := started(func() error {
		return advisory.LockTx(t.Context(), c, advisory.TxOptions{Wait: advisory.NoTimeout}, order)
	})
	eventually(t, func() bool { return locks(t, work, false) == 2 })
	var deadlock *advisory.DeadlockError
	require.ErrorAs(t, advisory.LockTx(t.Context(), a, advisory.TxOptions{Wait: advisory.NoTimeout}, known, stock), &deadlock)
	require.Len(t, deadlock.Cycle, 3)
	require.Equal(t, []namespace.Key{stock, order}, []namespace.Key{deadlock.Cycle[0], deadlock.Cycle[2]})
	require.Equal(t, unknown.Tag(), deadlock.Cycle[1].Tag())
	require.NotEqual(t, unknown, deadlock.Cycle[1], "control: the name of a key that no call had is unknown")
	require.ErrorContains(t, deadlock, "waits for lock stock/the second; ")
	require.ErrorContains(t, deadlock, "waits for lock order/the first; in its way is this transaction")
	require.NoError(t, a.Rollback(t.Context()))
	require.NoError(t, <-last)
	require.NoError(t, c.Rollback(t.Context()))
	require.NoError(t, <-raw)
}

// One statement in the circle is not a LockTx. The first to check gets the error. Here
// deadlock_timeout makes that LockTx; otherwise the statement could end with 40P01.
func TestACircleThroughARowIsFound(t *testing.T) {
	t.Parallel()
	work := dbtest.Pool(t, pgtest.DSN(t))
	_, err := work.Exec(t.Context(), "CREATE TABLE account (balance int); INSERT INTO account VALUES (1)")
	require.NoError(t, err)
	a, b := begin(t, work), begin(t, work)
	const update = "UPDATE account SET balance = balance + 1"
	_, err = a.Exec(t.Context(), update+"; SET LOCAL deadlock_timeout = '100ms'")
	require.NoError(t, err)
	_, err = b.Exec(t.Context(), "SET LOCAL deadlock_timeout = '1h'")
	require.NoError(t, err)
	require.NoError(t, advisory.LockTx(t.Context(), b, advisory.TxOptions{}, agents.ID(1)))
	other := started(func() error {
		_, err := b.Exec(t.Context(), update)
		return err
	})
	pid := b.Conn().PgConn().PID()
	eventually(t, func() bool {
		var n int
		err := work.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1", pid).Scan(&n)
		return err == nil && n == 1
	})
	err = advisory.LockTx(t.Context(), a, advisory.TxOptions{Wait: advisory.NoTimeout}, agents.ID(1))
	require.ErrorIs(t, err, advisory.ErrDeadlock)
	require.ErrorContains(t, err, "waits for lock agent/1; in its way is backend "+strconv.Itoa(int(pid)))
	require.ErrorContains(t, err, "which waits for what is no advisory lock; in its way is this transaction")
	require.NoError(t, a.Rollback(t.Context()))
	require.NoError(t, <-other)
}

// The control: with waits below deadlock_timeout the circle is not found.
func TestACircleOfShortWaitsTimesOut(t *testing.T) {
	t.Parallel()
	work := dbtest.Pool(t, pgtest.DSN(t))
	a, b := begin(t, work), begin(t, work)
	for _, tx := range []pgx.Tx{a, b} { // a wait of a busy server can last for longer than the default
		_, err := tx.Exec(t.Context(), "SET LOCAL deadlock_timeout = '1h'")
		require.NoError(t, err)
	}
	ofA, ofB := circle(t, a, b, advisory.TxOptions{Wait: 200 * time.Millisecond})
	for _, done := range []<-chan error{ofA, ofB} {
		err := <-done
		require.ErrorIs(t, err, advisory.ErrTimeout)
		require.NotErrorIs(t, err, advisory.ErrDeadlock)
	}
}

// A transaction of the circle waits for the turnstile that a Locker's waiter has, and so
// for that waiter, which waits for the other transaction.
func TestACircleOfTransactionsBehindALockersWaiterIsFound(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		s := newScene(t, advisory.TxOptions{}) // which holds key 1
		b := begin(t, s.work)
		require.NoError(t, advisory.LockTx(t.Context(), b, advisory.TxOptions{}, agents.ID(2)))
		options := advisory.TxOptions{Wait: advisory.NoTimeout}
		ofB := started(func() error { return advisory.LockTx(t.Context(), b, options, agents.ID(1)) })
		eventually(t, func() bool { return locks(t, s.work, false) == 2 })
		ofA := started(func() error { return advisory.LockTx(t.Context(), s.first, options, agents.ID(2)) })
		isA, other, err := first(ofA, ofB)
		require.ErrorIs(t, err, advisory.ErrDeadlock)
		victim, survivor := s.first, b
		if !isA {
			victim, survivor = b, s.first
		}
		require.NoError(t, victim.Rollback(t.Context()))
		if isA { // the Locker's waiter was first
			require.NoError(t, <-s.queued)
			require.NoError(t, (<-s.lock).Release())
		}
		require.NoError(t, <-other)
		require.NoError(t, survivor.Rollback(t.Context()))
		if !isA {
			require.NoError(t, <-s.queued)
			require.NoError(t, (<-s.lock).Release())
		}
	})
}

// A waitCounter counts the waits of a transaction, and how often it looks at a deadlock that
// PostgreSQL found.
type waitCounter struct {
	pgx.Tx
	waits, looks atomic.Int64
}

func (c *waitCounter) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	switch {
	case strings.HasPrefix(sql, "DO ") && strings.Contains(sql, "pg_catalog.pg_advisory_xact_lock("):
		c.waits.Add(1)
	case strings.Contains(sql, "{advisory,relation}"):
		c.looks.Add(1)
	}
	return c.Tx.Exec(ctx, sql, args...)
}

// A connection with room for several locks carries one, and waits for a key that a transaction
// holds, for somebody else. PostgreSQL takes it for a deadlock when the transaction waits for the
// lock that the connection carries: nobody else does.
func TestAConnectionThatCarriesALockAndWaitsForAnotherCallerIsNoCircle(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	work, l := dbtest.Pool(t, dsn), openAs(t, advisory.Config{DSN: dsn, LocksPerConn: 2, MaxConns: 2, Wait: advisory.NoTimeout})
	carried := map[int64]*advisory.Lock{}
	for _, id := range []int64{11, 12, 13} { // on both connections
		lock, err := l.Acquire(t.Context(), agents.ID(id))
		require.NoError(t, err)
		carried[id] = lock
	}
	tx := &waitCounter{Tx: begin(t, work)}
	_, err := tx.Exec(t.Context(), "SET LOCAL deadlock_timeout = '100ms'")
	require.NoError(t, err)
	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, agents.ID(2)))
	locked := make(chan *advisory.Lock, 1)
	queued := started(func() error {
		lock, err := l.Acquire(t.Context(), agents.ID(2))
		locked <- lock
		return err
	})
	var id int64 // a lock on the connection that waits
	eventually(t, func() bool {
		return work.QueryRow(t.Context(), `SELECT l.objid::int8 FROM pg_locks AS l JOIN pg_locks AS w USING (pid)
			WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 1 AND l.objsubid = 2 AND w.locktype = 'advisory' AND NOT w.granted AND w.classid = 1
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1`).Scan(&id) == nil
	})
	for tx.looks.Load() == 0 { // the one look of a wait can fall between two wait steps of the connection
		err := advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: time.Second}, agents.ID(id))
		require.ErrorIs(t, err, advisory.ErrTimeout)
	}
	done := started(func() error {
		return advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: advisory.NoTimeout}, agents.ID(id))
	})
	require.NoError(t, carried[id].Release())
	require.NoError(t, <-done)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-queued)
	require.NoError(t, (<-locked).Release())
}
