package lockcmd_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/introspect"
)

func TestAskReachesTheHolderAndSaysWhatCameOfIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	_, stderr, code := clitest.Run(t, clitest.At(dsn), "ask", "2:1")
	require.Equal(t, program.ExitFree, code, stderr)

	generous := openLocker(t, dsn, introspect.Config{AllowAsk: true})
	lock, err := generous.Acquire(t.Context(), orders.ID(1))
	require.NoError(t, err)
	until(t, dsn, `billing@`, "ls", "2:1")                                                                                                                       // it answers now
	until(t, dsn, fmt.Sprintf(`^order/1: billing@\S+ \(backend %d\) accepts it: the program has not looked at Lock.Asked yet\n$`, lock.PID()), "ask", "order/1") // the session that has the lock
	select {
	case <-lock.Asked():
	default:
		t.Error("the holder was not told")
	}
	until(t, dsn, "asked to release", "status", "order/1")

	strict := openLocker(t, dsn, introspect.Config{})
	_, err = strict.Acquire(t.Context(), orders.ID(2))
	require.NoError(t, err)
	stdout, stderr := untilCode(t, dsn, program.ExitRefused, "ask", "order/2", "--json")
	assert.Contains(t, stderr, "refused by billing@")
	d := clitest.Decode[struct{ Replies []introspect.Reply }](t, stdout)
	require.Len(t, d.Replies, 1)
	assert.Contains(t, d.Replies[0].Refused, "AllowAsk")

	clitest.Execute(t, clitest.Connect(t, dsn, "psql"), "SELECT pg_advisory_lock(2, 3)")
	stdout, stderr, code = clitest.Run(t, clitest.At(dsn), "ask", "2:3") // who uses the name order may answer too late
	assert.Equal(t, program.ExitUnavailable, code)
	assert.Regexp(t, `^(2:|order/)3: no answer from backend \d+ \(psql\), exclusive`, stdout)
	assert.Contains(t, stderr, "pglatch terminate")
}

func TestDumpHasTheHolderLogItsStack(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var log capture.Text
	l, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Answer: introspect.Config{AllowDump: true}, Logger: log.Logger()})
	require.NoError(t, err)
	defer l.Close()
	_, err = l.Acquire(t.Context(), orders.ID(1))
	require.NoError(t, err)
	until(t, dsn, `order/1 `, "ls", "order/")
	until(t, dsn, "the stack is in the process' log", "dump", "order/1")
	assert.Contains(t, log.String(), "TestDumpHasTheHolderLogItsStack")
}

func TestTerminateSaysWhatWillBeLost(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	billing := openLocker(t, dsn, introspect.Config{})
	lock, err := billing.With(advisory.Options{Label: "nightly"}).Acquire(t.Context(), orders.ID(1))
	require.NoError(t, err)
	until(t, dsn, `nightly`, "ls")
	pid := fmt.Sprint(lock.PID())

	refused := func(says string, args ...string) {
		t.Helper()
		match := regexp.MustCompile(says)
		_, _, code := untilGood(t, dsn, func(_, stderr string, _ int) bool { return match.MatchString(stderr) }, args...)
		assert.Equal(t, program.ExitUsage, code)
	}
	refused(`give --yes to end, without a terminal to ask on: backend `+pid+` \(billing-app\), user .*, of billing@\S+; +holds order/1 \(lock\), .*nightly`, "terminate", pid)

	until(t, dsn, `(?s)^backend `+pid+` .*  holds order/1 \(lock\), .*nightly`, "terminate", "--dry-run", pid)
	stdout, _, _ := clitest.Run(t, clitest.At(dsn), "terminate", "--dry-run", "--yes", "--json", pid)
	assert.False(t, clitest.Decode[struct{ Terminated bool }](t, stdout).Terminated)

	listens := clitest.Connect(t, dsn, "look")
	var listener int
	require.NoError(t, listens.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pglatch answers: %'`).Scan(&listener))
	refused(`is the session on which billing@\S+ answers questions, and holds no lock: those of the process are on backend `+pid, "terminate", "--yes", fmt.Sprint(listener))

	x := clitest.StartOnTerminal(t, clitest.At(dsn), 160, 24, "terminate", pid)
	x.Saying(&x.Stderr, "Type "+pid)
	x.Types("yes\n")
	assert.Equal(t, program.ExitUsage, x.Wait())
	assert.Contains(t, x.Stderr.String(), "was left alone")
	select {
	case <-lock.Lost():
		t.Fatal("it was not confirmed")
	default:
	}

	x = clitest.StartOnTerminal(t, clitest.At(dsn), 160, 24, "terminate", pid)
	x.Saying(&x.Stderr, "Type "+pid)
	x.Types(pid + "\n")
	assert.Zero(t, x.Wait(), x.Stderr.String())
	<-lock.Lost()

	_, stderr, code := clitest.Run(t, clitest.At(dsn), "terminate", "--yes", pid)
	assert.Equal(t, program.ExitFree, code)
	assert.Contains(t, stderr, "there is no session "+pid)
}
