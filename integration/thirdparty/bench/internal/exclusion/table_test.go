package exclusion_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
)

func open(t *testing.T, path string) *exclusion.Table {
	t.Helper()
	table, err := exclusion.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, table.Close()) })
	return table
}

func TestTwoHoldersAreCaughtAcrossMappings(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "table")
	require.NoError(t, exclusion.Create(path))
	one, other := open(t, path), open(t, path)

	noted, err := one.Enter(7)
	require.NoError(t, err)
	require.True(t, noted)
	_, err = other.Enter(7)
	require.ErrorIs(t, err, exclusion.ErrTwoHolders)
	noted, err = other.Enter(7 + 1<<14)
	require.NoError(t, err, "another key in the same slot")
	require.False(t, noted)

	require.NoError(t, one.Leave(7))
	require.ErrorIs(t, one.Leave(7), exclusion.ErrTwoHolders)
	noted, err = other.Enter(7)
	require.NoError(t, err)
	assert.True(t, noted)
}
