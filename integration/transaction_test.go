//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/netns"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// lockInATransaction holds a lock by LockTx and, when it was stopped and woken, writes and commits.
func lockInATransaction(id int64, idle string) func(ctx context.Context, dsn string) error {
	return func(ctx context.Context, dsn string) error {
		woken := make(chan os.Signal, 1)
		signal.Notify(woken, syscall.SIGCONT)
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return err
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if err := advisory.LockTx(ctx, tx, advisory.TxOptions{}, agents.ID(id)); err != nil {
			return err
		}
		// Not before, so that a pause until here does not end the transaction.
		if _, err := tx.Exec(ctx, "SELECT set_config('idle_in_transaction_session_timeout', $1, true)", idle); err != nil {
			return err
		}
		fmt.Println("held")
		<-woken
		_, err = tx.Exec(ctx, "INSERT INTO writes VALUES ($1)", id)
		if err == nil {
			err = tx.Commit(ctx)
		}
		fmt.Println("woken", err)
		return nil
	}
}

// A lock of LockTx belongs to the caller's transaction, and only what bounds that bounds the lock.
func TestALockTxOfAStoppedProcessIsFreeWhenTheServerEndsItsTransaction(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		judge := pgtest.Connect(t, dsn)
		_, err := judge.Exec(t.Context(), "CREATE TABLE writes (id bigint)")
		require.NoError(t, err)
		bounded, control := start(t, "transaction", dsn), start(t, "transaction unbounded", dsn)
		for _, holder := range []*proctest.Process{bounded, control} {
			holder.Says("held")
			holder.Signal(syscall.SIGSTOP)
		}
		l := open(t, dsn, session.DefaultTTL)
		lock := acquire(t, l, agents.ID(1))
		_, err = l.TryAcquire(t.Context(), agents.ID(2))
		require.ErrorIs(t, err, advisory.ErrHeld, "the control: its transaction has no bound")

		bounded.Signal(syscall.SIGCONT)
		assert.NotContains(t, bounded.Says("woken"), "<nil>", "it writes nothing under the lock of another")
		control.Signal(syscall.SIGCONT)
		assert.Contains(t, control.Says("woken"), "<nil>")
		var ids []int64
		require.NoError(t, judge.QueryRow(t.Context(), "SELECT array_agg(id) FROM writes").Scan(&ids))
		assert.Equal(t, []int64{2}, ids)
		require.NoError(t, lock.Release())
		require.NoError(t, acquire(t, l, agents.ID(2)).Release())
	})
}

// guardedLease is the lease of the leaders here.
const guardedLease = 2 * time.Second

// guardedName is the application_name of guarded transactions.
const guardedName = "guarded"

// What the guarded transaction of a leader is at when something happens, by
// PGLATCH_CHILD_STATEMENT, and in which state the server then sees it.
var statements = map[string]struct {
	run   func(ctx context.Context, tx pgx.Tx) error
	state string
}{
	"idle": {
		func(ctx context.Context, tx pgx.Tx) error {
			if err := execute(ctx, tx, "SELECT 'the last one'"); err != nil {
				return err
			}
			select {}
		},
		"state = 'idle in transaction' AND query LIKE '%the last one%'",
	},
	"sleep": {
		func(ctx context.Context, tx pgx.Tx) error { return execute(ctx, tx, "SELECT pg_sleep(3600)") },
		"wait_event = 'PgSleep'",
	},
	"row": {
		func(ctx context.Context, tx pgx.Tx) error { return execute(ctx, tx, "UPDATE somebodys SET i = i + 1") },
		"wait_event_type = 'Lock'",
	},
	"copy": {
		func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().PgConn().CopyFrom(ctx, endless{}, "COPY somebodys FROM STDIN")
			return err
		},
		"wait_event = 'ClientRead' AND EXISTS (SELECT FROM pg_stat_progress_copy AS p WHERE p.pid = a.pid AND p.bytes_processed > 0)",
	},
	"result": {
		func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "SELECT repeat('x', 10000) FROM generate_series(1, 1000000)")
			if err != nil {
				return err
			}
			rows.Next()
			select {}
		},
		"wait_event = 'ClientWrite'",
	},
}

// endless is a row now and then.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	<-time.After(10 * time.Millisecond)
	return copy(p, "1\n"), nil
}

func execute(ctx context.Context, tx pgx.Tx, sql string) error {
	_, err := tx.Exec(ctx, sql)
	return err
}

// leadAndGuard is a child that leads and begins a guarded transaction. A bare one takes
// back what the guard sets for it. If a pause of the machine ends the transaction before
// its statement is under way, the child begins another.
func leadAndGuard(ctx context.Context, dsn string) error {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = guardedName
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	elector, err := guardedElector(dsn, "child", 0, leader.Callbacks{})
	if err != nil {
		return err
	}
	return elector.Run(ctx, func(ctx context.Context) error {
		for ctx.Err() == nil {
			fmt.Println("the transaction:", postgres.InTx(ctx, pool, func(ctx context.Context, tx pgx.Tx) error {
				if os.Getenv("PGLATCH_CHILD_BARE") != "" {
					if err := execute(ctx, tx, `SET LOCAL client_connection_check_interval = 0; SET LOCAL idle_in_transaction_session_timeout = 0;
						SET LOCAL tcp_keepalives_idle = 7200`); err != nil {
						return err
					}
				}
				return statements[os.Getenv("PGLATCH_CHILD_STATEMENT")].run(ctx, tx)
			}))
		}
		return nil
	})
}

func guardedElector(dsn, identity string, guardTimeout time.Duration, callbacks leader.Callbacks) (*leader.Elector, error) {
	backend, err := postgres.New(postgres.Config{DSN: dsn, Key: namespace.Pair(9, 9), CreateTable: true, GuardTimeout: guardTimeout})
	if err != nil {
		return nil, err
	}
	return leader.New(leader.Config{Name: "guarded", Identity: identity, Backend: backend, LeaseDuration: guardedLease, Callbacks: callbacks})
}

// A hold-up is a leader that was stopped while its guarded transaction is inside a statement.
type holdUp struct {
	t     *testing.T
	dsn   string // of the candidate
	judge *pgx.Conn
	child *proctest.Process
	began time.Time
}

// newHoldUp starts the leader in a network namespace, unless ns is "".
func newHoldUp(t *testing.T, dsn, childDSN, ns, statement string, bare bool) *holdUp {
	t.Helper()
	h := &holdUp{t: t, dsn: dsn, judge: pgtest.Connect(t, dsn)}
	somebody := pgtest.Connect(t, dsn)
	for _, sql := range []string{
		postgres.Schema(""), "CREATE TABLE somebodys (i int); INSERT INTO somebodys VALUES (1)", "BEGIN; SELECT FROM somebodys FOR UPDATE",
	} {
		_, err := somebody.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	before := []string{"env", "PGLATCH_CHILD_STATEMENT=" + statement}
	if bare {
		before = append(before, "PGLATCH_CHILD_BARE=yes")
	}
	if ns != "" {
		before = append([]string{"ip", "netns", "exec", ns}, before...)
	}
	h.child = start(t, "guarded", childDSN, before...)
	await.Until(h.t, patience, func() bool {
		if h.guarded(statements[statement].state) == 0 {
			return false
		}
		h.child.Signal(syscall.SIGSTOP)
		if statement == "idle" || h.guarded(statements[statement].state) == 1 { // the server may end an idle one at any time
			return true
		}
		h.child.Signal(syscall.SIGCONT)
		return false
	}, "the statement is under way")
	return h
}

func (h *holdUp) guarded(state string) (n int) {
	h.t.Helper()
	require.NoError(h.t, h.judge.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity AS a WHERE application_name = $1 AND datname = current_database() AND "+state, guardedName).Scan(&n))
	return n
}

// candidate starts one, which waits for leadership.
func (h *holdUp) candidate(guardTimeout time.Duration) (*leader.Elector, func() *postgres.PendingError) {
	h.t.Helper()
	var mu sync.Mutex
	var pending *postgres.PendingError
	elector, err := guardedElector(h.dsn, "candidate", guardTimeout, leader.Callbacks{OnAcquireFailed: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errors.As(err, &pending)
	}})
	require.NoError(h.t, err)
	require.NoError(h.t, elector.Start(context.Background()))
	h.t.Cleanup(func() { require.NoError(h.t, elector.Shutdown(context.Background())) })
	h.began = time.Now()
	return elector, func() *postgres.PendingError {
		mu.Lock()
		defer mu.Unlock()
		return pending
	}
}

// ends waits until the candidate leads, which says that the transaction has ended.
func (h *holdUp) ends(elector *leader.Elector) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	require.NoError(h.t, elector.WaitForLeadership(ctx))
	h.t.Logf("a successor leads after %v", time.Since(h.began).Round(time.Millisecond))
	assert.Zero(h.t, h.guarded("pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"))
}

// lasts waits until the candidate has waited for longer than the bounds allow.
func (h *holdUp) lasts(elector *leader.Elector, pending func() *postgres.PendingError) {
	h.t.Helper()
	await.Until(h.t, patience, func() bool {
		p := pending()
		return p != nil && p.Guarded && p.Waited > 3*guardedLease
	}, "the takeover waits")
	assert.False(h.t, elector.IsLeader())
	assert.NotZero(h.t, pending().PID)
	_, err := h.judge.Exec(h.t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()", guardedName)
	require.NoError(h.t, err)
	h.ends(elector)
}

// Only what is in the row ends the transaction: a guard's settings alone where the
// client has died, and the candidate where it has stopped. The control of each row has
// neither.
func TestAGuardedTransactionInsideAStatementDoesNotHoldATakeoverUp(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		statement    string
		signal       syscall.Signal
		guardTimeout time.Duration
		bare         bool // the guard's settings are taken back
	}{
		{"idle", syscall.SIGSTOP, -1, false},
		{"idle", syscall.SIGSTOP, 0, true},
		{"copy", syscall.SIGSTOP, 0, false},
		{"result", syscall.SIGSTOP, 0, false},
		{"sleep", syscall.SIGKILL, -1, false},
		{"sleep", syscall.SIGKILL, 0, true},
		{"row", syscall.SIGKILL, -1, false},
		{"row", syscall.SIGKILL, 0, true},
		// The controls.
		{"idle", syscall.SIGSTOP, -1, true},
		{"copy", syscall.SIGSTOP, -1, false},
		{"result", syscall.SIGSTOP, -1, false},
		{"sleep", syscall.SIGKILL, -1, true},
		{"row", syscall.SIGKILL, -1, true},
	} {
		control := row.guardTimeout < 0 && (row.bare || row.statement == "copy" || row.statement == "result")
		t.Run(fmt.Sprintf("%s,%v,timeout=%v,bare=%v,control=%v", row.statement, row.signal, row.guardTimeout, row.bare, control), func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			h := newHoldUp(t, dsn, dsn, "", row.statement, row.bare)
			h.child.Signal(row.signal)
			elector, pending := h.candidate(row.guardTimeout)
			if control {
				h.lasts(elector, pending)
			} else {
				h.ends(elector)
			}
		})
	}
}

func TestACutInsideAStatementDoesNotHoldATakeoverUp(t *testing.T) {
	for _, row := range []struct {
		statement     string
		guardTimeout  time.Duration
		bare, control bool
	}{
		{"copy", -1, false, false}, // the server's TCP alone
		{"copy", 0, true, false},   // the candidate alone
		{"sleep", -1, false, false},
		{"result", 0, false, false},
		{"copy", -1, true, true},
		{"result", -1, false, true},
	} {
		t.Run(fmt.Sprintf("%s,timeout=%v,bare=%v,control=%v", row.statement, row.guardTimeout, row.bare, row.control), func(t *testing.T) {
			n := netns.New(t)
			server, local := n.StartServer(t)
			h := newHoldUp(t, local, server.DSN(""), n.Client, row.statement, row.bare)
			n.Forward(t, false)
			elector, pending := h.candidate(row.guardTimeout)
			if row.control {
				h.lasts(elector, pending)
			} else {
				h.ends(elector)
			}
		})
	}
}
