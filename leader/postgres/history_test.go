package postgres_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// later makes some terms and returns the last.
func later(t *testing.T, dsn string) (term leader.Term) {
	t.Helper()
	for range 3 {
		term = nextTerm(t, dsn)
	}
	return term
}

func TestTermsRiseThoughTheirRowIsRestored(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	for range 2 {
		nextTerm(t, dsn)
		judge.Exec("DROP TABLE IF EXISTS dump; CREATE TABLE dump AS SELECT * FROM pglatch_election") // what pg_dump does
		before := later(t, dsn)
		judge.Exec("TRUNCATE pglatch_election; INSERT INTO pglatch_election SELECT * FROM dump")
		judge.Exec("VACUUM FULL FREEZE pglatch_election") // which does not hide it
		after := nextTerm(t, dsn)
		require.Equal(t, 1, after.Compare(before), "%v after %v", after, before)
		assert.True(t, nextTerm(t, dsn).Follows(after), "once")
	}
}

func TestTermsRiseThoughADumpIsRestoredIntoTheSameCluster(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"pg_dump", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("no program %s: that a row is restored is tested without it", program)
			return
		}
	}
	dsn := pgtest.DSN(t)
	nextTerm(t, dsn)
	dump, err := exec.CommandContext(t.Context(), "pg_dump", "--clean", "--table", "public.pglatch_election", dsn).CombinedOutput()
	if err != nil {
		t.Logf("pg_dump is older than the server: %s", dump)
		return
	}
	before := later(t, dsn)
	restore := exec.CommandContext(t.Context(), "psql", "-v", "ON_ERROR_STOP=1", "-q", dsn)
	restore.Stdin = strings.NewReader(string(dump))
	out, err := restore.CombinedOutput()
	require.NoError(t, err, string(out))
	after := nextTerm(t, dsn)
	require.Equal(t, 1, after.Compare(before), "%v after %v", after, before)
}

func TestTermsRiseThoughADatabaseIsReplacedByACopyOfBefore(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	admin := newJudge(t, server.DSN(""))
	admin.Exec("CREATE DATABASE app")
	dsn := server.DSN("app")
	nextTerm(t, dsn)
	admin.Until(func() bool { // a template is in nobody's use, and a session that was closed ends soon
		return dbtest.Ask[int](admin, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'app'") == 0
	})
	admin.Exec("CREATE DATABASE copy TEMPLATE app")
	before := later(t, dsn)
	admin.Exec("DROP DATABASE app WITH (FORCE)")
	admin.Exec("ALTER DATABASE copy RENAME TO app")
	after := nextTerm(t, dsn)
	require.Equal(t, 1, after.Compare(before), "%v after %v", after, before)
}

func TestTermsRiseThoughTheServerIsRolledBackToACopyOfItsFiles(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	dsn := server.DSN("")
	nextTerm(t, dsn)
	data := dbtest.Ask[string](newJudge(t, dsn), "SHOW data_directory")
	copied := data + ".before"
	require.NoError(t, server.Stop(t.Context(), pgserver.Fast))
	run(t, "cp", "-a", data, copied)
	require.NoError(t, server.Start(t.Context()))
	before := later(t, dsn)
	require.NoError(t, server.Stop(t.Context(), pgserver.Fast))
	run(t, "rm", "-r", data)
	run(t, "mv", copied, data)
	require.NoError(t, server.Start(t.Context()))
	after := nextTerm(t, dsn)
	require.Equal(t, 1, after.Compare(before), "%v after %v", after, before)
}

func run(t *testing.T, words ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput()
	require.NoError(t, err, string(out))
}

// A leader that has its session again after a restart of the server, and that nobody
// came after, goes on with the next term: it has recovered.
func TestARestartOfTheServerIsNoRestoreToTheLeaderThatWasTheLast(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	dsn := server.DSN("")
	a := newBackend(t, dsn, nil)
	lead(t, a, "a")
	first := a.Term()
	require.NoError(t, server.Restart(t.Context(), pgserver.Fast))
	waitLost(t, a)
	lead(t, a, "a")
	assert.True(t, a.Term().Follows(first), "%v after %v", a.Term(), first)

	// The control: to any other it may be one.
	require.NoError(t, server.Restart(t.Context(), pgserver.Fast))
	waitLost(t, a)
	second := a.Term()
	third := nextTerm(t, dsn)
	assert.Equal(t, 1, third.Compare(second))
	assert.False(t, third.Follows(second), "%v after %v", third, second)
}

func TestATableThatLacksAColumnIsRefused(t *testing.T) {
	t.Parallel()
	for _, create := range []bool{true, false} {
		dsn := pgtest.DSN(t)
		judge := newJudge(t, dsn)
		judge.Exec(postgres.Schema("") + "; ALTER TABLE pglatch_election DROP COLUMN written")
		b := newBackend(t, dsn, func(c *postgres.Config) { c.CreateTable = create })
		_, err := b.TryAcquire(t.Context(), "b", ttl)
		var table *postgres.TableError
		require.ErrorAs(t, err, &table)
		assert.True(t, table.Outdated)
		require.ErrorIs(t, err, leader.ErrPermanent)
		require.ErrorContains(t, err, "lacks a column that this version needs")
		assert.Zero(t, dbtest.Ask[int](judge, "SELECT count(*) FROM pglatch_election"), "nothing was counted")
	}
}

func TestANewEraIsAboveAllThatWasCounted(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	b := newBackend(t, dsn, nil)
	before := later(t, dsn)
	elections, err := b.NewEra(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, elections)
	assert.Equal(t, before.Era+postgres.EraStep, nextTerm(t, dsn).Era)

	judge.Exec("UPDATE pglatch_election SET era = 32760")
	_, err = b.NewEra(t.Context())
	require.ErrorContains(t, err, "beyond 32767")
	assert.Equal(t, 32760, dbtest.Ask[int](judge, "SELECT era FROM pglatch_election"))
}
