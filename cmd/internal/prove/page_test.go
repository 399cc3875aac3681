package prove

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePageHasEveryProofAndEveryPart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/proven-servers.md")
	require.NoError(t, err)
	for _, p := range proofs() {
		assert.Contains(t, string(page), "\n| "+p.name+" | ")
	}
	for _, p := range parts {
		assert.Contains(t, string(page), "\n| "+p.name+" | ")
	}
}
