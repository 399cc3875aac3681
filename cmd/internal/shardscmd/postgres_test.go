package shardscmd_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func TestPeopleLookAtShardsOfADatabaseAndMoveThem(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, identity := range []string{"web-1", "web-2"} {
		b, err := postgres.New(postgres.Config{DSN: dsn, Namespace: namespace.Must(7, "tenant"), CreateTable: true})
		require.NoError(t, err)
		start(t, b, identity, "a", "b", "c", "d")
	}
	requireMoves(t, clitest.At(dsn, "PGLATCH_NAMESPACES=tenant=7"), "tenant")
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "shards", "ls", "tenant=7", "--nodes")
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "web-1")
}

func TestAGroupOfADatabaseIsANamespaceWhoseNumberIsKnown(t *testing.T) {
	t.Parallel()
	env := clitest.At(pgtest.DSN(t))
	for group, want := range map[string]string{
		"tenant":   "say tenant=NUMBER",
		"tenant=x": `GROUP is "tenant=x": use name=number`,
		"tenant=0": "1 to 32767",
	} {
		_, stderr, code := clitest.Run(t, env, "shards", "ls", group)
		assert.Equal(t, 64, code, group)
		assert.Contains(t, stderr, want)
	}
	_, stderr, code := clitest.Run(t, env, "shards", "ls", "tenant=7")
	assert.Equal(t, 3, code, "as for a group of which nothing is known")
	assert.Contains(t, stderr, " has no table public.pglatch_shard, or none of those beside it: nodes with Config.CreateTable make them, or postgres.Schema of leader/shards in a migration; "+
		"if nodes run, check the address of the database, and --table\n")
	assert.NotContains(t, stderr, "SQLSTATE")
	_, stderr, code = clitest.Run(t, env, "shards", "drain", "tenant=7", "a")
	assert.Equal(t, 3, code, stderr)
	_, stderr, code = clitest.Run(t, clitest.At(clitest.Nowhere), "shards", "drain", "tenant=7", "a")
	assert.Equal(t, 69, code, stderr)
}
