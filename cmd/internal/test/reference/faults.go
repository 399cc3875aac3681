package reference

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/seams"
)

// ofFaults says on which versions and in which modes CI runs the tests of each fault.
func ofFaults(tb testing.TB) string {
	tb.Helper()
	header, rows, err := seams.Matrix(root)
	require.NoError(tb, err)
	return table(header, rows)
}
