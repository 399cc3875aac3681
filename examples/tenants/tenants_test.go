package main_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/demotest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// CI runs the demo itself, which checks its own claims: make demo-shards ONCE=1.
func TestAClaimFailsWhenWritesAreNotGuarded(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	output, code := demotest.Play(t, nil, "-once", "-break")
	require.Equal(t, 1, code, output)
	assert.Contains(t, output, "NOT TRUE: no row of an old term came after one of a new term")
	assert.Contains(t, output, "1 of 5 claims failed", "ownership was right all the same")
}
