package main

import (
	"testing"
	"time"

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

func TestTheWitnessFindsTwoClientsInsideAndTokensThatDoNotRise(t *testing.T) {
	t.Parallel()
	w := newWitness()
	w.enter("a", 1, 7)
	w.enter("b", 2, 7)
	w.exit("a", 1)
	w.enter("a", 2, 8)
	twice, fell := w.wrong()
	assert.Empty(t, twice)
	assert.Empty(t, fell)

	w.enter("a", 3, 8)
	twice, fell = w.wrong()
	assert.Equal(t, []string{"client 3 went into a while client 2 was inside"}, twice)
	assert.Equal(t, []string{"client 3 went into a with token 8 after one with 8"}, fell)
	total, inside := w.count()
	assert.Equal(t, 4, total)
	assert.Equal(t, 3, inside)
}

func TestAGapIsTheLongestTimeWithoutAVisit(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(ms int, client int) visit { return visit{began.Add(time.Duration(ms) * time.Millisecond), client} }
	visits := []visit{at(10, 1), at(20, 2), at(120, 1), at(150, 3)}
	assert.Equal(t, 100*time.Millisecond, gap(began, visits))
	assert.Equal(t, 10*time.Millisecond, gap(began, visits[:2]))
	assert.Equal(t, 100*time.Millisecond, gap(began, []visit{at(100, 1)}), "from the beginning on")
}
