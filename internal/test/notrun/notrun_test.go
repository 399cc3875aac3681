package notrun_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/notrun"
)

// A recorder is a test that only records how it ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper()               {}
func (r *recorder) Name() string          { return "Test" }
func (r *recorder) Skipf(string, ...any)  { r.ended = "skipped" }
func (r *recorder) Fatalf(string, ...any) { r.ended = "failed" }

func TestWhatCannotBeRunIsSkippedAndInCIAFailure(t *testing.T) {
	for ci, ended := range map[string]string{"": "skipped", "true": "failed"} {
		t.Setenv("CI", ci)
		r := &recorder{TB: t}
		assert.Empty(t, notrun.Program(r, "it is not installed", "pglatch-no-such-program"))
		assert.Equal(t, ended, r.ended)
	}
	r := &recorder{TB: t}
	assert.NotEmpty(t, notrun.Program(r, "", "pglatch-no-such-program", "go"))
	assert.Empty(t, r.ended)
}
