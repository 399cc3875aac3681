package postgres_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

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
