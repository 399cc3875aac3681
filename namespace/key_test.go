package namespace_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/namespace"
)

func TestSingleRefusesTheKeysOfLeaderElection(t *testing.T) {
	t.Parallel()
	for _, k := range []int64{-1, math.MinInt64, math.MinInt32} {
		key, err := namespace.Single(k)
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		require.ErrorContains(t, err, "SingleRaw")
		assert.False(t, key.Valid())
		got, ok := namespace.SingleRaw(k).Tag().Single()
		assert.True(t, ok)
		assert.Equal(t, k, got)
	}
	for _, k := range []int64{0, 1, math.MaxInt64} {
		key, err := namespace.Single(k)
		require.NoError(t, err)
		assert.Equal(t, namespace.SingleRaw(k), key)
	}
}

func TestThePairAndTheSingleFormAreDifferentLocks(t *testing.T) {
	t.Parallel()
	single, err := namespace.Single(1)
	require.NoError(t, err)
	assert.NotEqual(t, single.Tag(), namespace.Pair(0, 1).Tag())
	assert.Equal(t, agents.ID(42).Tag(), namespace.Pair(1, 42).Tag(), "a raw pair is the same lock")
}

func TestTheZeroKeyIsInvalid(t *testing.T) {
	t.Parallel()
	var k namespace.Key
	assert.False(t, k.Valid())
	assert.Equal(t, "invalid", k.String())
	assert.Zero(t, k.Namespace())
	assert.Empty(t, k.Entity())
}

func TestKeysPrintTheirTextForm(t *testing.T) {
	t.Parallel()
	text, err := agents.Text("acme/eu")
	require.NoError(t, err)
	slot, err := agents.ID(42).Companion("slot7")
	require.NoError(t, err)
	turnstile, err := agents.ID(42).Companion("turnstile")
	require.NoError(t, err)
	for want, k := range map[string]namespace.Key{
		"agent/42":              agents.ID(42),
		"agent/2147483648":      agents.ID(1 << 31),
		"agent/acme/eu":         text,
		"1:100":                 namespace.Pair(1, 100),
		"-1:-2147483648":        namespace.Pair(-1, math.MinInt32),
		"@12345":                namespace.SingleRaw(12345),
		"@-9223372036854775808": namespace.SingleRaw(math.MinInt64),
		"agent/42#slot7":        slot,
		"agent/42#turnstile":    turnstile,
	} {
		assert.Equal(t, want, k.String())
	}
}

func TestCompanionsExistOnlyInANamespaceAndWithARole(t *testing.T) {
	t.Parallel()
	for _, k := range []namespace.Key{{}, namespace.Pair(1, 42), namespace.SingleRaw(7)} {
		_, err := k.Companion("slot0")
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		require.ErrorContains(t, err, "raw key")
	}
	_, err := agents.ID(42).Companion("")
	require.ErrorIs(t, err, namespace.ErrInvalidKey)
}

func TestAllCompanionsOfAnEntityAreDifferentLocks(t *testing.T) {
	t.Parallel()
	k := agents.ID(42)
	seen := map[namespace.Tag]bool{k.Tag(): true}
	turnstile, err := k.Companion("turnstile")
	require.NoError(t, err)
	seen[turnstile.Tag()] = true
	for i := range 1000 {
		slot, err := k.Companion("slot" + strconv.Itoa(i))
		require.NoError(t, err)
		assert.Equal(t, agents, slot.Namespace())
		seen[slot.Tag()] = true
	}
	assert.Len(t, seen, 1000+2)
}
