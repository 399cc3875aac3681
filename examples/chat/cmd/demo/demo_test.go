package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/demotest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// CI runs the demo itself, which checks its own claims: make demo-turns ONCE=1.
func TestAMessageHasTwoRepliesIfTheyAreSavedBesideTheTurn(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	output, code := demotest.Play(t, nil, "-once", "-break")
	require.Equal(t, 1, code, output)
	assert.Contains(t, output, "NOT TRUE: no message has two replies")
	assert.NotContains(t, output, "NOT TRUE: nothing is lost")
}
