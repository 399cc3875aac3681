package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/demotest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestTheLateWriteIsStoredWithoutFencingAndRefusedWithIt(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	output, code := demotest.Play(t, nil)
	require.Zero(t, code, output)
	assert.Contains(t, output, "all 6 claims hold")
	assert.Contains(t, output, "412 Precondition Failed", "by the HTTP resource")
	assert.Contains(t, output, "stale claim on document", "by Guard")
	assert.Equal(t, 2, strings.Count(output, `the document reads: "by writer-1, too late"`), "the failure is shown")
	assert.Equal(t, 2, strings.Count(output, `the document reads: "by writer-2"`))
}

func TestTheHTTPScenesNeedNoPostgreSQL(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	output, code := demotest.Play(t, []string{"PGLATCH_TEST_DATABASE_URL=postgres://nobody@127.0.0.1:1/none"})
	require.Zero(t, code, output)
	assert.Contains(t, output, "no PostgreSQL, so its two scenes are left out")
	assert.Contains(t, output, "all 3 claims hold")
}
