package main_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/demotest"
)

// CI runs the demo itself, which checks its own claims: make demo-cluster ONCE=1.
func TestAClaimFailsWhenClientsIgnoreThatTheirLeasesEnd(t *testing.T) {
	t.Parallel()
	output, code := demotest.Play(t, nil, "-once", "-break")
	require.Equal(t, 1, code, output)
	assert.Contains(t, output, "NOT TRUE: nobody was inside a lock in which somebody else was")
	assert.Contains(t, output, "1 of 3 claims failed", "tokens rose all the same")
}
