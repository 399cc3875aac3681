package advisory_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
)

// A transaction that holds a key does not queue behind a writer that waits for it. Plain SQL
// behaves the same.
func TestATransactionThatHasAKeyGetsItAgainThoughAWriterWaits(t *testing.T) {
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for name, options := range map[string]advisory.TxOptions{"shared": {Shared: true}, "exclusive": {}} {
			s := newScene(t, options)
			assert.NoError(t, advisory.LockTx(t.Context(), s.first, advisory.TxOptions{Shared: true}, agents.ID(1)), name)
			assert.NoError(t, advisory.LockTx(t.Context(), s.first, advisory.TxOptions{Shared: true, Try: true}, agents.ID(1)), name)
			require.NoError(t, s.first.Commit(t.Context()))
			require.NoError(t, <-s.queued, "the writer gets it at the commit")
			require.NoError(t, (<-s.lock).Release())
		}
	})
}
