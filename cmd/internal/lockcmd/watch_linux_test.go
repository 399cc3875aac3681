package lockcmd_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// has reports whether the screen shows all texts: what is drawn at once can be seen in parts.
func has(texts ...string) func([]string) bool {
	return func(lines []string) bool {
		for _, text := range texts {
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, text) }) {
				return false
			}
		}
		return true
	}
}

func TestWatchShowsKeysOnATerminalUntilQIsPressed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var sql []string
	for i := range 30 {
		sql = append(sql, fmt.Sprintf("SELECT pg_advisory_lock(1, %d)", i))
	}
	clitest.Execute(t, clitest.Connect(t, dsn, "holder"), strings.Join(sql, ";"))
	clitest.WaitFor(t, dsn, clitest.Connect(t, dsn, "waiter"), "SELECT pg_advisory_lock(1, 17)")

	x := clitest.StartOnTerminal(t, clitest.At(dsn, names), 100, 12, "watch", "--interval", "250ms")
	lines := x.Shows(has("agent/17", "q quit"))
	assert.Contains(t, lines[0], "30 keys, 1 waited for")
	assert.Regexp(t, `^KEY +MODE +HOLDER`, lines[1], "the header")
	assert.Regexp(t, `^agent/17 +exclusive +holder .* 1 +≥`, lines[2], "who is waited for comes first")
	assert.NotEmpty(t, lines[10], "the screen is full")
	assert.Contains(t, lines[11], "q quit")

	x.Types("\x1b[F") // End
	lines = x.Shows(has("agent/29"))
	assert.Regexp(t, `^KEY +MODE +HOLDER`, lines[1], "the header stays")

	x.Resize(60, 20)
	lines = x.Shows(func(lines []string) bool { return strings.Contains(lines[len(lines)-1], "q quit") })
	assert.NotContains(t, lines[1], "LABEL", "what does not fit is left out")
	assert.Contains(t, lines[1], "HOLDER")

	x.Types("/17\r")
	lines = x.Shows(has("filter: 17"))
	assert.Empty(t, lines[3], "one key matches")
	x.Types("\r")
	x.Shows(has("waited for by 1", "(waiter), exclusive"))
	x.Types("\x1b")
	x.Shows(has("filter: 17"))
	x.Types("\x1b")
	x.Shows(has("agent/1 "))
	x.Types("s")
	x.Shows(has("sort: wait "))

	x.Types("q")
	assert.Zero(t, x.Wait())
	assert.Empty(t, x.Stderr.String())
}

// tcell would ask the terminal for its size, and tmux 3.3 answers with width and height exchanged.
func TestWatchFillsTheScreenOfTmux(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	clitest.Execute(t, clitest.Connect(t, dsn, "holder"), "SELECT pg_advisory_lock(1, 1)")
	x := clitest.StartOnTmux(t, clitest.At(dsn, names), 100, 24, "watch", "--interval", "250ms")
	x.Shows(has("agent/1"))
	x.Types("s") // which draws again, after all answers of the terminal
	lines := x.Shows(has("sort: wait ", "q quit"))
	assert.Contains(t, lines[23], "q quit", strings.Join(lines, "\n"))
	assert.Regexp(t, `^KEY +MODE +HOLDER .*LABEL`, lines[1])
	x.Types("q")
	assert.Zero(t, x.Wait())
}

func TestWatchEndsOnCtrlCAndOnASignal(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, end := range []func(*clitest.Terminal){
		func(x *clitest.Terminal) { x.Types("\x03") },
		func(x *clitest.Terminal) { x.Signal(syscall.SIGTERM) },
	} {
		x := clitest.StartOnTerminal(t, clitest.At(dsn), 80, 24, "watch", "--interval", "250ms", "--rows", "2")
		x.Shows(has("nothing is locked"))
		end(x)
		require.Zero(t, x.Wait())
	}
}

func TestWatchShowsTheLeasesOfALockServerAndWhyItCannot(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "printer\x1b[31m", Holder: "kiosk-1", TTL: time.Hour})
	require.ErrorIs(t, err, lease.ErrInvalid, "no name breaks a terminal")
	_, err = store.Acquire(t.Context(), lease.AcquireRequest{Name: "printer", Holder: "kiosk-1", TTL: time.Hour})
	require.NoError(t, err)
	server := clitest.ServeConfig(t, leaseserver.Config{Store: store})
	x := clitest.StartOnTerminal(t, clitest.At(pgtest.DSN(t)), 100, 24, "watch", "--interval", "250ms", "--server", server.URL)
	x.Shows(has("nothing is locked"))
	x.Types("f")
	x.Shows(has("LEASE OF SERVER", "WAITERS", "kiosk-1"))
	server.Close()
	x.Shows(has("NOT READ", "the lock server"))
	x.Types("q")
	assert.Zero(t, x.Wait())
}

func TestWatchOnATerminalSaysThatTheDatabaseDoesNotAnswer(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	clitest.Execute(t, clitest.Connect(t, server.DSN(""), "before"), "SELECT pg_advisory_lock(1, 1)")
	x := clitest.StartOnTerminal(t, clitest.At(server.DSN("")), 80, 24, "watch", "--interval", "250ms")
	x.Shows(has("before"))
	require.NoError(t, server.Stop(t.Context(), pgserver.Fast))
	lines := x.Shows(has("nothing seen since"))
	assert.True(t, has("before")(lines[1:]), "what was seen stays")
	require.NoError(t, server.Start(t.Context()))
	x.Shows(has("nothing is locked"))
	x.Types("q")
	assert.Zero(t, x.Wait())
}
