package pgsession

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// As behind a transaction pooler, where another client has prepared the statement on the session.
func TestAStatementThatIsPreparedAlreadyIsSaidToBeAPoolers(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", pgtest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	lock := func(before string) error {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), before)
		require.NoError(t, err)
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = TxTry(context.WithoutCancel(t.Context()), FromSQL(tx), []namespace.Tag{pairKey}, session.Exclusive, true)
		return err
	}
	require.NoError(t, lock("SELECT 1"))
	var name string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT name FROM pg_prepared_statements WHERE statement = $1", outcomeSQL).Scan(&name), "the driver prepares our query")
	db.SetMaxIdleConns(0) // the next connection is a new one
	err = lock(fmt.Sprintf("PREPARE %s AS SELECT 1", name))
	require.ErrorIs(t, err, session.ErrPooler)
	require.Equal(t, sqlstate.DuplicateStatement, sqlstate.Of(err))
}

func TestTheDetailOfADeadlockIsReadInAnyLanguage(t *testing.T) {
	t.Parallel()
	want := []cycleWait{{11, namespace.Pair(1, 42).Tag()}, {12, namespace.Tag{}}, {13, namespace.SingleRaw(-1).Tag()}}
	for _, detail := range []string{
		"Process 11 waits for ExclusiveLock on advisory lock [5,1,42,2]; blocked by process 12.\n" +
			"Process 12 waits for ShareLock on transaction 745; blocked by process 13.\n" +
			"Process 13 waits for ShareLock on advisory lock [5,4294967295,4294967295,1]; blocked by process 11.",
		"Prozess 11 wartet auf ExclusiveLock-Sperre auf Advisory-Lock [5,1,42,2]; blockiert von Prozess 12.\n" +
			"Prozess 12 wartet auf ShareLock-Sperre auf Transaktion 745; blockiert von Prozess 13.\n" +
			"Prozess 13 wartet auf ShareLock-Sperre auf Advisory-Lock [5,4294967295,4294967295,1]; blockiert von Prozess 11.",
	} {
		assert.Equal(t, want, parseCycle(detail))
	}
}

func TestACycleThroughAConnectionOfALockerIsBelievedOnlyIfTheTurnstileIsInTheWay(t *testing.T) {
	t.Parallel()
	a, b := namespace.Pair(1, 1).Tag(), namespace.Pair(1, 2).Tag()
	gate := turnstile.Of(b)
	for name, c := range map[string]struct {
		waits []cycleWait
		locks map[uint32][]namespace.Tag
		in    map[uint32]bool // a transaction
		want  []namespace.Tag // nil = not believed
	}{
		"two transactions": {
			[]cycleWait{{1, a}, {2, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, b}}, map[uint32]bool{1: true, 2: true}, []namespace.Tag{a, b},
		},
		"a transaction that keeps the turnstile": {
			[]cycleWait{{1, a}, {2, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, b, gate}}, map[uint32]bool{1: true, 2: true}, []namespace.Tag{a, b},
		},
		"SQL by hand that touched no table": {
			[]cycleWait{{1, a}, {2, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, b}}, map[uint32]bool{1: true}, []namespace.Tag{a, b},
		},
		"a connection that carries the lock": {
			[]cycleWait{{1, a}, {2, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, b, gate}}, map[uint32]bool{1: true}, nil,
		},
		"a connection that carries the lock and waits for a turnstile": {
			[]cycleWait{{1, a}, {2, gate}, {3, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, gate}, 3: {b, gate}}, map[uint32]bool{1: true}, nil,
		},
		"a transaction behind a connection's turnstile": {
			[]cycleWait{{1, a}, {2, gate}, {3, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, gate}, 3: {b, gate}}, map[uint32]bool{1: true, 2: true}, []namespace.Tag{a, b, b},
		},
		"this transaction behind a connection's turnstile": {
			[]cycleWait{{1, gate}, {2, b}, {3, a}}, map[uint32][]namespace.Tag{1: {a, gate}, 2: {b, gate}, 3: {a, b}}, map[uint32]bool{1: true, 3: true}, []namespace.Tag{b, b, a},
		},
	} {
		parties := map[uint32]*party{}
		for pid, tags := range c.locks {
			parties[pid] = newParty()
			parties[pid].relation = c.in[pid]
			for _, tag := range tags {
				parties[pid].note(lockRow{Class: tag.ClassID, Object: tag.ObjID, Form: tag.ObjSubID})
			}
		}
		var got []namespace.Tag
		for _, step := range judgeCycle(c.waits, parties) {
			got = append(got, step.Tag)
		}
		require.Equal(t, c.want, got, name)
	}
}

// txWaiting is a transaction that waits for what somebody else holds.
func txWaiting(t *testing.T) *sql.Tx {
	t.Helper()
	dsn := pgtest.DSN(t)
	connect(t, dsn).exec("SELECT pg_advisory_lock(7, 9)")
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// A wait for a key can be several. lock_timeout is for all of them.
func TestALockTimeoutThatIsUsedUpEndsAWait(t *testing.T) {
	t.Parallel()
	tx := txWaiting(t)
	_, err := tx.ExecContext(t.Context(), "SET LOCAL lock_timeout = '1h'")
	require.NoError(t, err)
	for waited, want := range map[time.Duration]TxWaited{0: {}, time.Hour: {LockTimeout: "1h"}} {
		end, err := TxWait(t.Context(), FromSQL(tx), pairKey, session.Exclusive, 200*time.Millisecond, waited)
		require.NoError(t, err)
		assert.Equal(t, want, end)
	}
}

// An endingTx ends a context before a statement.
type endingTx struct {
	Tx
	before string
	end    context.CancelFunc
}

func (e endingTx) Exec(ctx context.Context, sql string, args ...any) error {
	if sql == e.before {
		e.end()
	}
	return e.Tx.Exec(ctx, sql, args...)
}

func TestSettingsAreGivenBackThoughTheContextHasEnded(t *testing.T) {
	t.Parallel()
	tx := txWaiting(t)
	show := func() (settings string) {
		t.Helper()
		require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT concat_ws(' ', current_setting('statement_timeout'), current_setting('client_connection_check_interval'))").Scan(&settings))
		return settings
	}
	_, err := tx.ExecContext(t.Context(), "SET LOCAL statement_timeout = '1234ms'")
	require.NoError(t, err)
	before := show()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = TxWait(ctx, endingTx{FromSQL(tx), txWaitSQL, cancel}, pairKey, session.Exclusive, time.Minute, 0)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, show())

	// The control: the wait's own settings, with nobody to give them back.
	require.NoError(t, FromSQL(tx).Exec(t.Context(), txWaitRequestSQL, "", "", "", "", "", "", ""))
	require.NotEqual(t, before, show())
	restore(ctx, FromSQL(tx))
	require.Equal(t, before, show())
}
