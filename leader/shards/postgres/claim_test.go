package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

func TestAClaimThatFailsLeavesNoLocksAndWhatWasClaimedBefore(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	s := open(t, newBackend(t, dsn, nil), "a")
	first := claim(t, s, "1")["1"]
	// Locks are taken before the rows are written.
	judge.exec(`ALTER TABLE pglatch_shard ADD CONSTRAINT broken CHECK (name = '1')`)
	_, err := s.Claim(t.Context(), []string{"2", "three"})
	require.ErrorContains(t, err, "broken")
	assert.Equal(t, 1, judge.locks())
	judge.exec(`ALTER TABLE pglatch_shard DROP CONSTRAINT broken`)
	assert.Len(t, claim(t, s, "2", "three"), 2)
	release(t, s, "1")
	assert.Equal(t, 1, claim(t, s, "1")["1"].Compare(first))
}

func TestTwoNamesOfOneKeyAreNeverOne(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := open(t, newBackend(t, dsn, nil), "a"), open(t, newBackend(t, dsn, nil), "b")
	const upper, lower = "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	require.Contains(t, claim(t, a, lower), lower)
	assert.Len(t, claim(t, b, upper, "1"), 1, "the others are claimed all the same")
	_, err := b.Claim(t.Context(), []string{upper})
	var clash *postgres.ClashError
	require.ErrorAs(t, err, &clash)
	assert.Equal(t, lower, clash.Other)
	release(t, a, lower)
	_, err = b.Claim(t.Context(), []string{upper})
	require.ErrorAs(t, err, &clash, "the terms of the other are counted under this key")
}

func TestTablesThatAreMissingAreSaidAtOnce(t *testing.T) {
	t.Parallel()
	b := newBackend(t, pgtest.DSN(t), func(c *postgres.Config) { c.CreateTable = false })
	_, err := b.Open(t.Context(), member("a"), ttl)
	require.ErrorIs(t, err, leader.ErrPermanent)
	var table *postgres.TableError
	require.ErrorAs(t, err, &table)
	assert.True(t, table.Missing)
	require.NoError(t, b.Migrate(t.Context()))
	require.NoError(t, b.Migrate(t.Context()), "it can be repeated")
	open(t, b, "a")
}
