package postgres

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/once"
)

// Claims of two versions would not exclude each other.
func TestTheLockOfATickNeverChanges(t *testing.T) {
	t.Parallel()
	tick := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for table, want := range map[string]string{DefaultTable: "@-902083299744756234", "pglatch_once": "@-902083299744756234", "jobs.ticks": "@-8178554962739837801"} {
		assert.Equal(t, want, lockOf(table, once.Request{Job: "report", Tick: tick}).String(), table)
	}
	assert.NotEqual(t, lockOf(DefaultTable, once.Request{Job: "report", Tick: tick}), lockOf(DefaultTable, once.Request{Job: "report", Tick: tick.Add(time.Microsecond)}), "the control")
}
