package cli_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestTryTakesAFreeLockAndGivesItBack(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn, "judge")
	for _, name := range []string{"try", "acquire"} {
		stdout, stderr, code := run(t, at(dsn), name, "1:42")
		assert.Zero(t, code, stderr)
		assert.Regexp(t, `^acquired 1:42 \(backend \d+\)\n$`, stdout)
		assert.Empty(t, stderr)
		assert.Empty(t, holders(t, conn))
	}
	stdout, stderr, code := run(t, at(dsn), "try", "--json", "-s", "--namespace", "agent=1", "agent/42", "--hold", "1ms")
	assert.Zero(t, code, stderr)
	document := decode[map[string]any](t, stdout)
	assert.Equal(t, "agent/42", document["key"])
	assert.Equal(t, true, document["shared"])
	assert.NotZero(t, document["backend_pid"])
}

func TestTryOfALockThatIsHeldTellsByWhom(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder := connect(t, dsn, "nightly report")
	execute(t, holder, "SELECT pg_advisory_lock_shared(1, 42)")
	stdout, stderr, code := run(t, at(dsn), "try", "1:42")
	assert.Equal(t, 75, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, fmt.Sprintf("is held by backend %d (nightly report)", holder.PgConn().PID()))
	_, _, code = run(t, at(dsn), "acquire", "-E", "1", "1:42")
	assert.Equal(t, 1, code)
	_, stderr, code = run(t, at(dsn), "try", "-s", "1:42")
	assert.Zero(t, code, stderr)
}

func TestTryHoldsTheLockUntilASignal(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn, "judge")
	p := start(t, at(dsn), "try", "1:42", "--hold", "1h")
	p.saying(&p.stdout, "acquired")
	require.Len(t, holders(t, conn), 1)
	p.signal(syscall.SIGTERM)
	assert.Zero(t, p.wait(), p.stderr.String())
	assert.Empty(t, holders(t, conn))
}

func TestTryEndsWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := connect(t, dsn, "judge")
	p := start(t, at(dsn), "try", "1:42", "--hold", "1h")
	p.saying(&p.stdout, "acquired")
	terminate(t, conn, holders(t, conn)[0])
	assert.Equal(t, 76, p.wait())
	assert.Contains(t, p.stderr.String(), "lock 1:42 lost")
}

func TestTryWithoutADatabaseEndsWith69(t *testing.T) {
	t.Parallel()
	_, stderr, code := run(t, at(nowhere), "try", "1:42")
	assert.Equal(t, 69, code)
	assert.NotContains(t, stderr, "s3cret")
}
