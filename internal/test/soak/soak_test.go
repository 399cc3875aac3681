package soak_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/soak"
)

func TestOneVariableSelectsTheLongForm(t *testing.T) {
	for value, want := range map[string]int{"": 1, "0": 1, "1": 2} {
		t.Setenv(soak.Variable, value)
		assert.Equal(t, want, soak.Size(t, 1, 2), value)
	}
}

// A recorder is a test that only records whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(string, ...any) {
	r.failed = true
}

func TestAnotherValueFailsInsteadOfSelectingAForm(t *testing.T) {
	t.Setenv(soak.Variable, "yes")
	r := &recorder{TB: t}
	assert.Panics(t, func() { soak.Size(r, 1, 2) }, "a real Fatalf does not return")
	assert.True(t, r.failed)
}
