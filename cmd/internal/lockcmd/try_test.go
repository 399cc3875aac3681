package lockcmd_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestTryTakesAFreeLockAndGivesItBack(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "judge")
	for _, name := range []string{"try", "acquire"} {
		stdout, stderr, code := clitest.Run(t, clitest.At(dsn), name, "1:42")
		assert.Zero(t, code, stderr)
		assert.Regexp(t, `^acquired 1:42 \(backend \d+\)\n$`, stdout)
		assert.Empty(t, stderr)
		assert.Empty(t, clitest.Holders(t, conn))
	}
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "try", "--json", "-s", "--namespace", "agent=1", "agent/42", "--hold", "1ms")
	assert.Zero(t, code, stderr)
	document := clitest.Decode[map[string]any](t, stdout)
	assert.Equal(t, "agent/42", document["key"])
	assert.Equal(t, true, document["shared"])
	assert.NotZero(t, document["backend_pid"])
}

func TestTryOfALockThatIsHeldTellsByWhom(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder := clitest.Connect(t, dsn, "nightly report")
	clitest.Execute(t, holder, "SELECT pg_advisory_lock_shared(1, 42)")
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "try", "1:42")
	for strings.Contains(stderr, "its holder is unknown") { // a busy machine
		stdout, stderr, code = clitest.Run(t, clitest.At(dsn), "try", "1:42")
	}
	assert.Equal(t, 75, code)
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, fmt.Sprintf("is held by backend %d (nightly report)", holder.PgConn().PID()))
	_, _, code = clitest.Run(t, clitest.At(dsn), "acquire", "-E", "1", "1:42")
	assert.Equal(t, 1, code)
	_, stderr, code = clitest.Run(t, clitest.At(dsn), "try", "-s", "1:42")
	assert.Zero(t, code, stderr)
}

func TestTryHoldsTheLockUntilASignal(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "judge")
	p := clitest.Start(t, clitest.At(dsn), "try", "1:42", "--hold", "1h")
	p.Saying(&p.Stdout, "acquired")
	require.Len(t, clitest.Holders(t, conn), 1)
	p.Signal(syscall.SIGTERM)
	assert.Zero(t, p.Wait(), p.Stderr.String())
	assert.Empty(t, clitest.Holders(t, conn))
}

func TestTryEndsWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "judge")
	p := clitest.Start(t, clitest.At(dsn), "try", "1:42", "--hold", "1h")
	p.Saying(&p.Stdout, "acquired")
	clitest.Terminate(t, conn, clitest.Holders(t, conn)[0])
	assert.Equal(t, 76, p.Wait())
	assert.Contains(t, p.Stderr.String(), "lock 1:42 lost")
}

func TestTryWithoutADatabaseEndsWith69(t *testing.T) {
	t.Parallel()
	_, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), "try", "1:42")
	assert.Equal(t, 69, code)
	assert.NotContains(t, stderr, "s3cret")
}
