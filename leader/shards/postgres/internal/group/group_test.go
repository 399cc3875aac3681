package group

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/namespace"
)

func TestAShardsKeyIsOneNumberForBothForms(t *testing.T) {
	t.Parallel()
	for _, number := range []int{1, 7, namespace.MaxNumber} {
		g := Group{Namespace: namespace.Must(number, "tenant")}
		for _, name := range []string{"0", "1", "-1", "2147483647", "-2147483648", "2147483648", "acme", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"} {
			key, err := g.Key(name)
			require.NoError(t, err)
			want, err := g.Namespace.Text(name)
			require.NoError(t, err)
			assert.Equal(t, want.Tag(), g.TagOf(key), "%s of %d", name, number)
		}
	}
	_, err := Group{Namespace: namespace.Must(7, "tenant")}.Key("")
	require.ErrorIs(t, err, namespace.ErrInvalidKey)
}

// Nodes of two versions would not see each other.
func TestTheLockOfTheMembersNeverChanges(t *testing.T) {
	t.Parallel()
	g := Group{Namespace: namespace.Must(7, "tenant")}
	assert.Equal(t, "@-5140846267934405312", g.Member().String())
	assert.Equal(t, "pglatch_shards_b8a80b8e82e08d40", g.Channel())
}
