package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/frozen/tables"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

func startServer(t *testing.T, settings map[string]string) *pgserver.Server {
	t.Helper()
	return pgtest.StartServer(t, pgserver.Options{Settings: settings})
}

// nextTerm leads for a moment on a server that may just have been restarted.
func nextTerm(t *testing.T, dsn string) leader.Term {
	t.Helper()
	b := newBackend(t, dsn, nil)
	lead(t, b, "a")
	release(t, b, "a")
	require.NoError(t, b.Close())
	return b.Term()
}

func TestTermsRiseAcrossACrashOfTheServer(t *testing.T) {
	t.Parallel()
	// The sessions' default is asynchronous commit, and nothing is written before it must be.
	server := startServer(t, map[string]string{
		"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "autovacuum": "off", "bgwriter_delay": "10s",
	})
	dsn := server.DSN("")
	before := nextTerm(t, dsn)
	repeated := false
	for range 3 {
		for range 5 {
			term := nextTerm(t, dsn)
			require.Equal(t, 1, term.Compare(before), "%v after %v", term, before)
			before = term
		}
		control := oneByHand(t, dsn)
		require.NoError(t, server.Kill())
		require.NoError(t, server.Start(t.Context()))
		term := nextTerm(t, dsn)
		require.Equal(t, 1, term.Compare(before), "%v after %v", term, before)
		before = term
		repeated = repeated || oneByHand(t, dsn) <= control
	}
	assert.True(t, repeated, "the control: with asynchronous commit a count repeats")
}

// oneByHand counts as the backend does, on a session that does not wait for its
// commits.
func oneByHand(t *testing.T, dsn string) int64 {
	t.Helper()
	judge := newJudge(t, dsn)
	judge.Exec("CREATE TABLE IF NOT EXISTS by_hand (election text PRIMARY KEY, n bigint NOT NULL)")
	judge.Exec("SET synchronous_commit = on; INSERT INTO by_hand VALUES ('warm', 1) ON CONFLICT (election) DO UPDATE SET n = by_hand.n + 1")
	var n int64
	for range 5 {
		tx := judge.Begin()
		require.NoError(t, tx.QueryRow(t.Context(), `INSERT INTO by_hand AS t VALUES ('x', 1)
			ON CONFLICT (election) DO UPDATE SET n = t.n + 1 RETURNING n`).Scan(&n))
		_, err := tx.Exec(t.Context(), "SET LOCAL synchronous_commit = off")
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
	}
	return n
}

func TestTermsRiseAcrossThePromotionOfAStandbyThatMissedSome(t *testing.T) {
	t.Parallel()
	primary := startServer(t, nil)
	before := nextTerm(t, primary.DSN(""))
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	replica := newJudge(t, standby.DSN(""))
	replica.Until(func() bool { return dbtest.Ask[int64](replica, "SELECT n FROM pglatch_election") == int64(before.N) })

	b := newBackend(t, standby.DSN(""), nil)
	_, err = b.TryAcquire(t.Context(), "b", ttl)
	require.ErrorIs(t, err, postgres.ErrStandby)

	replica.Exec("SELECT pg_wal_replay_pause()")
	for range 5 {
		before = nextTerm(t, primary.DSN(""))
	}
	require.NoError(t, primary.Stop(t.Context(), pgserver.Immediate))
	missed := dbtest.Ask[int64](replica, "SELECT n FROM pglatch_election")
	replica.Exec("SELECT pg_wal_replay_resume()")
	promote(t, replica)
	replica.Exec("UPDATE pglatch_election SET ended_at = now()" + sameWriter) // the end of what it knows may have been replayed, or not
	a := newBackend(t, standby.DSN(""), nil)
	lead(t, a, "a")
	require.False(t, a.CleanStart(), "what it missed may not have")
	after := a.Term()
	release(t, a, "a")
	require.Equal(t, 1, after.Compare(before), "%v after %v, of which the standby knew %d", after, before, missed)
	assert.Equal(t, before.Era+1, after.Era)
	assert.Equal(t, after.Era, nextTerm(t, standby.DSN("")).Era, "one promotion counts once")
}

// sameWriter makes an UPDATE one that a leader could have made.
const sameWriter = ", written = (SELECT oid FROM pg_database WHERE datname = current_database())::text || '/' || pg_current_xact_id()::xid::text"

// A row that says that its term ended in good order says nothing of terms that the server has forgotten.
func TestAStartIsCleanOnlyInTheHistoryOfTheTermBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql   string
		clean bool
	}{
		"nothing happened (the control)":          {"SELECT 1", true},
		"the row was written again (the control)": {"UPDATE pglatch_election SET pid = pid" + sameWriter, true},
		"a standby was promoted":                  {"UPDATE pglatch_election SET timeline = timeline - 1" + sameWriter, false},
		"the server was upgraded":                 {"UPDATE pglatch_election SET timeline = timeline + 7" + sameWriter, false},
		"it is another server":                    {"UPDATE pglatch_election SET system_identifier = system_identifier + 1" + sameWriter, false},
		"the server was started":                  {"UPDATE pglatch_election SET server_start = server_start - interval '1 second'" + sameWriter, false},
		"the row was restored or edited":          {"UPDATE pglatch_election SET pid = pid", false},
		"the row says that it did not end":        {"UPDATE pglatch_election SET ended_at = NULL" + sameWriter, false},
		"the row is gone":                         {"DELETE FROM pglatch_election", false},
		"the table is gone":                       {"DROP TABLE pglatch_election", false},
		"the row is of another election":          {"UPDATE pglatch_election SET election = '1:101'" + sameWriter, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			nextTerm(t, dsn)
			newJudge(t, dsn).Exec(c.sql)
			b := newBackend(t, dsn, nil)
			lead(t, b, "b")
			require.Equal(t, c.clean, b.CleanStart())
		})
	}
}

func promote(t *testing.T, replica judge) {
	t.Helper()
	require.True(t, dbtest.Ask[bool](replica, "SELECT pg_promote()"))
	replica.Until(func() bool { return !dbtest.Ask[bool](replica, "SELECT pg_is_in_recovery()") })
}

func TestAnEraBeginsWhereTheServerIsAnother(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	require.Equal(t, leader.Term{Era: 1, N: 1}, nextTerm(t, dsn))
	for change, want := range map[string]uint16{
		"timeline = timeline":                       1,
		"system_identifier = system_identifier + 1": 2, // a dump, restored elsewhere
		"timeline = timeline + 7":                   2, // pg_upgrade begins at 1 again
	} {
		judge.Exec("UPDATE pglatch_election SET era = 1, " + change)
		assert.Equal(t, want, nextTerm(t, dsn).Era, change)
	}
	judge.Exec("UPDATE pglatch_election SET era = 1, timeline = timeline - 3") // three promotions since
	assert.Equal(t, uint16(4), nextTerm(t, dsn).Era)

	judge.Exec("UPDATE pglatch_election SET era = 32768")
	_, err := newBackend(t, dsn, nil).TryAcquire(t.Context(), "a", ttl)
	require.ErrorContains(t, err, "term 32768.")
	judge.Exec("UPDATE pglatch_election SET era = 1, n = 281474976710655")
	_, err = newBackend(t, dsn, nil).TryAcquire(t.Context(), "a", ttl)
	require.ErrorContains(t, err, "is beyond 32767.281474976710655")
	assert.Zero(t, judge.locks(), "a failed attempt leaves nothing")
}

func TestAMissingTableIsNamedWithAllWaysToMakeIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	without := func(c *postgres.Config) { c.CreateTable = false }
	a := newBackend(t, dsn, without)
	_, err := a.TryAcquire(t.Context(), "a", ttl)
	for _, way := range []string{"public.pglatch_election", "Schema", "Migrate", "pglatch migrate", "CreateTable", "NoTerms"} {
		require.ErrorContains(t, err, way)
	}
	assert.Zero(t, judge.locks())
	require.NotErrorIs(t, err, leader.ErrConnection)
	require.ErrorIs(t, err, leader.ErrPermanent)
	_, err = newBackend(t, dsn, func(c *postgres.Config) { c.CreateTable, c.AwaitTable = false, true }).TryAcquire(t.Context(), "a", ttl)
	require.ErrorContains(t, err, "does not exist")
	require.NotErrorIs(t, err, leader.ErrPermanent, "somebody will make it")

	_, ok, err := a.Leader(t.Context())
	require.NoError(t, err)
	assert.False(t, ok)
	b := newBackend(t, dsn, noTerms)
	lead(t, b, "b")
	assert.True(t, b.Term().IsZero())
	assert.False(t, b.CleanStart())
	holder, ok, err := a.Leader(t.Context())
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, "b", holder.Identity)
	assert.Zero(t, holder.Term)
	release(t, b, "b")

	judge.Exec(postgres.Schema(""))
	judge.Exec(postgres.Schema(postgres.DefaultTable))
	lead(t, a, "a")
	assert.Equal(t, uint64(1), a.Term().N)
}

func TestTheTableHasTheNameThatItIsGiven(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	judge.Exec(`CREATE SCHEMA "Ops"`)
	for table, want := range map[string]string{"Ops.Terms": `"Ops"."Terms"`, "my_terms": `public.my_terms`} {
		b := newBackend(t, dsn, func(c *postgres.Config) { c.Table = table })
		lead(t, b, "a")
		assert.Equal(t, 1, dbtest.Ask[int](judge, "SELECT count(*) FROM "+want+" WHERE election = '1:100' AND identity = 'a' AND ended_at IS NULL"))
		release(t, b, "a")
		assert.Equal(t, 1, dbtest.Ask[int](judge, "SELECT count(*) FROM "+want+" WHERE ended_at >= since"))
	}
}

func TestARoleWithoutRightsIsToldTheGrant(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	admin := newJudge(t, server.DSN(""))
	admin.Exec("CREATE ROLE plain LOGIN")
	admin.Exec(postgres.Schema(""))
	dsn := pgtest.As(t, server.DSN(""), "plain")
	b := newBackend(t, dsn, func(c *postgres.Config) { c.CreateTable = false })
	_, err := b.TryAcquire(t.Context(), "b", ttl)
	require.ErrorContains(t, err, `GRANT SELECT, INSERT, UPDATE ON "public"."pglatch_election"`)
	assert.Zero(t, admin.locks())
	admin.Exec("GRANT SELECT, INSERT, UPDATE ON pglatch_election TO plain")
	lead(t, b, "b")

	// It sees what matters of a leader of another role.
	a := newBackend(t, server.DSN(""), func(c *postgres.Config) { c.CreateTable = false })
	release(t, b, "b")
	lead(t, a, "a")
	holder, ok, err := b.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, "a", holder.Identity)
	assert.Equal(t, a.Term(), holder.Term)

	release(t, a, "a")
	admin.Exec("DROP TABLE pglatch_election; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	require.ErrorContains(t, newBackend(t, dsn, nil).Migrate(t.Context()), "permission denied")

	admin.Exec("DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database()); END $$")
	err = newBackend(t, dsn, nil).Migrate(t.Context())
	require.ErrorContains(t, err, "permission denied for database")
	var table *postgres.TableError
	require.NotErrorAs(t, err, &table, "the table is not why")
	require.ErrorIs(t, err, leader.ErrConnection)
}

func TestALockedRowIsAnErrorThatSaysSoAndWhoseLockItIs(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]string{
		"row": "SELECT FROM pglatch_election FOR UPDATE", "table": "LOCK TABLE pglatch_election", "update": "UPDATE pglatch_election SET pid = pid",
	} {
		// Leases whose attempts end before and after half of the longest wait for a row.
		for _, lease := range []time.Duration{500 * time.Millisecond, 3 * time.Second, 6 * time.Second, time.Minute} {
			t.Run(name+" "+lease.String(), func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				judge := newJudge(t, dsn)
				nextTerm(t, dsn)
				tx := judge.Begin()
				_, err := tx.Exec(t.Context(), lock)
				require.NoError(t, err)
				b := newBackend(t, dsn, nil)
				whose := fmt.Sprintf("backend %d, of role postgres, since ", pidOf(t, tx))
				await.Until(t, await.Patience, func() bool { // a busy machine needs more attempts, and longer ones
					ctx, cancel := context.WithTimeout(t.Context(), lease/3) // as an Elector makes them
					defer cancel()
					_, err = b.TryAcquire(ctx, "b", lease)
					lease = min(lease+lease/2, time.Minute)
					return err == nil || strings.Contains(err.Error(), whose)
				})
				require.ErrorContains(t, err, "another transaction has locked the row of 1:100 in public.pglatch_election")
				require.ErrorContains(t, err, whose)
				require.NoError(t, tx.Rollback(t.Context()))
				lead(t, b, "b")
			})
		}
	}
}

func TestLeaderTellsWhoLeads(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	_, ok, err := b.Leader(t.Context())
	require.NoError(t, err)
	assert.False(t, ok)
	lead(t, a, "node-a")
	holder, ok, err := b.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	assert.WithinDuration(t, time.Now(), holder.Since, time.Minute)
	holder.Since = time.Time{}
	assert.Equal(t, leader.Holder{
		Identity: "node-a", Term: leader.Term{Era: 1, N: 1}, Detail: fmt.Sprintf("pid %d, 127.0.0.1", judge.holder()),
	}, holder)

	// Who has the lock and did not take over has no term.
	release(t, a, "node-a")
	tx := judge.Begin()
	_, err = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1, 100)")
	require.NoError(t, err)
	holder, ok, err = b.Leader(t.Context())
	require.NoError(t, err)
	assert.True(t, ok)
	assert.True(t, holder.Term.IsZero())
	refused(t, a, "node-a")
}

func TestConnectMakesTheConnections(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	made := 0
	b := newBackend(t, dsn, func(c *postgres.Config) {
		c.Connect = func(ctx context.Context, cc *pgx.ConnConfig) (*pgx.Conn, error) {
			made++
			return pgx.ConnectConfig(ctx, cc)
		}
	})
	lead(t, b, "b")
	assert.Equal(t, 2, made, "the session, and a connection that made the table")
}

func TestTheTableOfTermsIsFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "tables", tables.Of(t, postgres.Schema("")))
}
