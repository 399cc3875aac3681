package postgres_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/guardtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// bound claims one shard and returns the context of its work.
func bound(tb testing.TB, s driver.Session, name string) context.Context {
	tb.Helper()
	grants, err := s.Claim(tb.Context(), []string{name})
	require.NoError(tb, err)
	require.Len(tb, grants, 1)
	return s.(driver.Binder).Bind(tb.Context(), grants[0])
}

func write(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO writes VALUES (1)`)
	return err
}

func TestAShardIsNotClaimedWhileAGuardedTransactionIsUnderWay(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	judge.Exec(`CREATE TABLE writes (n int)`)
	a, b := open(t, newBackend(t, dsn, nil), "a"), open(t, newBackend(t, dsn, nil), "b")
	work, unguarded := bound(t, a, "1"), bound(t, a, "2")
	begin := func(ctx context.Context) pgx.Tx {
		tx, err := judge.Pool.Begin(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		require.NoError(t, write(ctx, tx))
		return tx
	}
	tx, control := begin(work), begin(unguarded)
	require.NoError(t, postgres.Guard(work, tx))
	judge.Terminate(postgres.PIDOf(a))

	got := claim(t, b, "1", "2", "3")
	assert.NotContains(t, got, "1")
	assert.Contains(t, got, "2", "the control: its transaction has no guard")
	assert.Contains(t, got, "3", "others need not wait")
	_, err := b.Claim(t.Context(), []string{"1"})
	var guarded *postgres.GuardedError
	require.ErrorAs(t, err, &guarded)
	assert.Equal(t, []string{"1"}, guarded.Shards)
	assert.Equal(t, 2, judge.locks(), "its lock was given back")

	require.NoError(t, tx.Commit(t.Context()), "before the next term")
	assert.Contains(t, claim(t, b, "1"), "1")
	require.NoError(t, control.Commit(t.Context()), "after the next term has begun")
}

func TestGuardsOfShardsStandAllAttacks(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardtest.Guard{Open: openTerms, Ended: leader.ErrNotLeader, Lasts: true, ReadOnly: true, Elsewhere: `relation "public.pglatch_shard" does not exist`, TTL: ttl})
}

// terms are the terms of one shard, whose nodes have one session each.
type terms struct {
	judge    judge
	dsn      string
	shard    string
	sessions map[string]driver.Session
}

func openTerms(tb testing.TB, dsn string, number int) guardtest.Rights {
	tb.Helper()
	return &terms{newJudge(tb, dsn), dsn, guardtest.OddName + strconv.Itoa(number), map[string]driver.Session{}}
}

func (s *terms) session(holder string) driver.Session {
	session := s.sessions[holder]
	if session == nil {
		session = open(s.judge.TB(), newBackend(s.judge.TB(), s.dsn, nil), holder)
		s.sessions[holder] = session
	}
	return session
}

func (s *terms) Begin(tb testing.TB, holder string) guardtest.Right {
	tb.Helper()
	session := s.session(holder)
	var grants []driver.Grant
	await.Until(tb, patience, func() bool {
		var err error
		grants, err = session.Claim(tb.Context(), []string{s.shard})
		if !errors.Is(err, driver.ErrUnclaimable) {
			require.NoError(tb, err)
		}
		return len(grants) == 1
	})
	work := session.(driver.Binder).Bind(context.Background(), grants[0])
	return guardtest.Right{
		Functions: guardtest.Functions{Guard: postgres.Guard, GuardSQL: postgres.GuardSQL, InTx: postgres.InTxOptions, InSQLTx: postgres.InSQLTxOptions}.Of(work),
		Outlives: map[string]func(testing.TB){"a renewal": func(tb testing.TB) {
			tb.Helper()
			lost, err := session.Renew(tb.Context(), ttl)
			require.NoError(tb, err)
			require.Empty(tb, lost)
		}},
		Ends: map[string]guardtest.End{
			"a release": {Do: func(tb testing.TB) {
				tb.Helper()
				release(tb, session, s.shard)
			}},
			"the end of the session": {Do: func(tb testing.TB) {
				tb.Helper()
				s.judge.Terminate(postgres.PIDOf(session))
				s.sessions[holder] = nil
			}},
		},
	}
}

func (s *terms) Blocked(tb testing.TB, holder string) {
	tb.Helper()
	await.Until(tb, patience, func() bool {
		grants, err := s.session(holder).Claim(tb.Context(), []string{s.shard})
		require.Empty(tb, grants, "somebody owns the shard beside a guarded transaction")
		_, guarded := errors.AsType[*postgres.GuardedError](err)
		return guarded
	})
}

// A wedge is a guarded transaction in the middle of a statement that waits for its client, which does nothing more.
type wedge struct {
	pid  uint32
	done chan error
}

// wedged begins one for the shard "1", and ends the session that owns it.
func wedged(t *testing.T, dsn string, j judge, stop func(ctx context.Context, tx pgx.Tx, forever <-chan struct{}) error) wedge {
	t.Helper()
	a := open(t, newBackend(t, dsn, nil), "a")
	work := bound(t, a, "1")
	tx, err := j.Pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, postgres.Guard(work, tx))
	w := wedge{tx.Conn().PgConn().PID(), make(chan error, 1)}
	forever := make(chan struct{})
	ctx := context.WithoutCancel(t.Context())
	go func() { w.done <- stop(ctx, tx, forever) }()
	t.Cleanup(func() {
		close(forever)
		<-w.done
		_ = tx.Rollback(ctx)
	})
	j.Until(func() bool {
		return dbtest.Ask[string](j, "SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = $1", w.pid) == "ClientRead" &&
			dbtest.Ask[string](j, "SELECT state FROM pg_stat_activity WHERE pid = $1", w.pid) == "active" ||
			dbtest.Ask[string](j, "SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = $1", w.pid) == "ClientWrite"
	})
	j.Terminate(postgres.PIDOf(a))
	return w
}

// A stuck reader gives one row, and then nothing.
type stuck struct {
	begun   bool
	forever <-chan struct{}
}

func (s *stuck) Read(p []byte) (int, error) {
	if !s.begun {
		s.begun = true
		return copy(p, "1\n"), nil
	}
	<-s.forever
	return 0, io.EOF
}

var wedges = map[string]func(ctx context.Context, tx pgx.Tx, forever <-chan struct{}) error{
	"COPY": func(ctx context.Context, tx pgx.Tx, forever <-chan struct{}) error {
		_, err := tx.Conn().PgConn().CopyFrom(ctx, &stuck{forever: forever}, "COPY writes FROM STDIN")
		return err
	},
	"a big result": func(ctx context.Context, tx pgx.Tx, forever <-chan struct{}) error {
		rows, err := tx.Query(ctx, "SELECT repeat('x', 10000) FROM generate_series(1, 100000)")
		if err == nil {
			<-forever
			rows.Close()
		}
		return err
	},
}

func TestAClaimEndsAGuardedTransactionThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	for name, stop := range wedges {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			j := newJudge(t, dsn)
			j.Exec(`CREATE TABLE writes (n int)`)
			var log capture.Text
			const timeout = 300 * time.Millisecond
			b := open(t, newBackend(t, dsn, func(c *postgres.Config) {
				c.GuardTimeout, c.Logger = timeout, slog.New(slog.NewJSONHandler(&log, nil))
			}), "b")
			never := open(t, newBackend(t, dsn, func(c *postgres.Config) { c.GuardTimeout = -1 }), "never")
			w := wedged(t, dsn, j, stop)

			// The control, without the timeout.
			var guarded *postgres.GuardedError
			began := time.Now()
			j.Until(func() bool {
				_, err := never.Claim(t.Context(), []string{"1"})
				require.ErrorAs(t, err, &guarded)
				require.ErrorIs(t, err, driver.ErrUnclaimable)
				return time.Since(began) > 3*timeout && guarded.Pending != nil
			})
			assert.Equal(t, w.pid, guarded.Pending.PID)
			assert.ErrorContains(t, guarded, "shard 1 of tenant=7 waits for a guarded transaction: backend ")

			began = time.Now()
			j.Until(func() bool {
				grants, err := b.Claim(t.Context(), []string{"1"})
				if err != nil {
					require.ErrorAs(t, err, &guarded)
				}
				return len(grants) == 1
			})
			assert.GreaterOrEqual(t, time.Since(began), timeout)
			assert.Contains(t, log.String(), "guarded transactions of an earlier term are ended")
			j.Until(func() bool { // an ending backend gives up its locks before its place in the list
				return dbtest.Ask[int](j, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", w.pid) == 0
			})
		})
	}
}

func TestAClaimThatMayNotEndAGuardedTransactionSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	dsn := pgtest.StartServer(t, pgserver.Options{}).DSN("")
	j := newJudge(t, dsn)
	j.Exec(`CREATE TABLE writes (n int); CREATE ROLE app LOGIN`)
	w := wedged(t, dsn, j, wedges["COPY"])
	j.Exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON pglatch_shard, pglatch_shard_member, pglatch_shard_order TO app`)
	b := open(t, newBackend(t, pgtest.As(t, dsn, "app"), func(c *postgres.Config) { c.GuardTimeout = time.Millisecond }), "b")
	var guarded *postgres.GuardedError
	j.Until(func() bool {
		_, err := b.Claim(t.Context(), []string{"1"})
		require.ErrorAs(t, err, &guarded)
		return guarded.Pending != nil
	})
	assert.Equal(t, w.pid, guarded.Pending.PID)
	assert.ErrorContains(t, guarded, "SUPERUSER")
}
