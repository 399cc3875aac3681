package leased_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/leased"
)

func TestAConfigThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, says string }{
		{"", "Name is empty: give one"},
		{"a/../b", `use no segments "." and ".."`},
		{strings.Repeat("x", 513), "use at most 512 bytes"},
	} {
		_, err := leased.New(newFaulty(), leased.Config{Name: c.name})
		var wrong *leader.ConfigError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, "Name", wrong.Field)
		assert.ErrorContains(t, err, c.says)
	}
	_, err := leased.New(nil, leased.Config{Name: group})
	require.ErrorContains(t, err, "the store is nil")
}

func TestAnIdentityThatNoLeaseCanHaveIsRefusedForGood(t *testing.T) {
	t.Parallel()
	_, err := newBackend(t, newFaulty()).Open(t.Context(), self(strings.Repeat("x", 513)), ttl)
	require.ErrorIs(t, err, leader.ErrPermanent)
	require.ErrorContains(t, err, "Holder")
}
