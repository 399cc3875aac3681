package docs_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// takeShedLock is what ShedLock sends to PostgreSQL with usingDbTime, with its parameters filled in.
const takeShedLock = `INSERT INTO shedlock(name, lock_until, locked_at, locked_by)
VALUES ('closeTheBooks', timezone('utc', CURRENT_TIMESTAMP) + interval '600000 milliseconds', timezone('utc', CURRENT_TIMESTAMP), 'a JVM')
ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '600000 milliseconds',
	locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'a JVM'
WHERE shedlock.name = 'closeTheBooks' AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)`

func TestTheProgramThatRunsBesideShedLockExcludesIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	jvmTakes := func() bool {
		tag, err := conn.Exec(t.Context(), takeShedLock)
		require.NoError(t, err)
		return tag.RowsAffected() == 1
	}
	program := filepath.Join(t.TempDir(), "program")
	build(t, strings.ReplaceAll(firstProgramOf(t, "docs/coming-from/shedlock.md"), "postgres://localhost/shop", dsn), program)
	run := func() (said string) {
		p := clitest.StartCommand(t, nil, program)
		require.Zero(t, p.Wait(), p.Stderr.String())
		return p.Stderr.String()
	}

	assert.Contains(t, run(), "closes the books", "the row is free")
	assert.False(t, jvmTakes(), "for lockAtLeastFor after the program took the row")

	_, err := conn.Exec(t.Context(), `UPDATE shedlock SET lock_until = timezone('utc', now()); DELETE FROM pglatch_once`)
	require.NoError(t, err)
	require.True(t, jvmTakes(), "the control: the row can be taken")
	assert.NotContains(t, run(), "closes the books", "a JVM has the row")
	var who string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT locked_by FROM shedlock WHERE lock_until > timezone('utc', now())").Scan(&who))
	assert.Equal(t, "a JVM", who)
}

// firstProgramOf is the first whole program of a page.
func firstProgramOf(t *testing.T, name string) string {
	t.Helper()
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if p.name == name && b.language == "go" && strings.HasPrefix(b.text, "package ") {
				return b.text
			}
		}
	}
	require.Fail(t, "the page has no program", name)
	return ""
}
