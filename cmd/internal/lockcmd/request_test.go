package lockcmd_test

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
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

func TestAnAskedCommandGetsTERMIfItIsToBeSo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	start := func(key, onAsk string) *clitest.Program {
		p := clitest.Start(t, clitest.At(dsn), "run", "--on-ask", onAsk, key, "-c", "trap 'echo asked; exit 7' TERM; echo runs; while :; do sleep 0.05; done")
		p.Saying(&p.Stdout, "runs")
		until(t, dsn, `(?m)^`+key+` +exclusive +\S+@\S+:\d+ `, "ls")
		return p
	}
	heeds, ignores := start("2:1", "term"), start("2:2", "ignore")
	_, stderr, asked := untilGood(t, dsn, func(_, _ string, code int) bool { return code != program.ExitUnavailable }, "ask", "2:1")
	require.Contains(t, []int{0, program.ExitFree}, asked, "it accepts, or has ended since an earlier request: %s", stderr)
	assert.Equal(t, 7, heeds.Wait())
	assert.Contains(t, heeds.Stdout.String(), "asked")
	stdout, _ := untilCode(t, dsn, program.ExitRefused, "ask", "2:2")
	assert.Contains(t, stdout, "it was started without --on-ask=term; to end its command, send TERM to process ")
	stdout, _ = untilCode(t, dsn, program.ExitRefused, "dump", "2:2")
	assert.NotContains(t, stdout, "Config.Answer")
	ignores.Signal(syscall.SIGTERM) // it still gets the signals of pglatch
	assert.Equal(t, 7, ignores.Wait())
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

func TestTerminateLeavesStrangersAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	stranger, holder := clitest.Connect(t, dsn, "psql"), clitest.Connect(t, dsn, "psql")
	pid := fmt.Sprint(stranger.PgConn().PID())
	_, stderr, code := clitest.Run(t, clitest.At(dsn), "terminate", "--yes", pid)
	assert.Equal(t, program.ExitUsage, code)
	assert.Contains(t, stderr, "give --force")
	clitest.Execute(t, stranger, "SELECT 1") // it lives

	clitest.Execute(t, holder, "SELECT pg_advisory_lock(2, 3)")
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "terminate", "--yes", "--json", fmt.Sprint(holder.PgConn().PID()))
	require.Zero(t, code, stderr)
	assert.Contains(t, stderr, "holds 2:3 (lock)")
	d := clitest.Decode[struct {
		Terminated bool
		Loses      []struct{ Key string }
	}](t, stdout)
	assert.True(t, d.Terminated)
	assert.Equal(t, "2:3", d.Loses[0].Key)

	stdout, stderr, code = clitest.Run(t, clitest.At(dsn), "terminate", "--yes", "--force", pid)
	assert.Zero(t, code, stderr)
	assert.Equal(t, "backend "+pid+" has ended\n", stdout)
	for _, bad := range []string{"0", "x", "-1"} {
		_, _, code = clitest.Run(t, clitest.At(dsn), strings.Fields("terminate --yes -- "+bad)...)
		assert.Equal(t, program.ExitUsage, code)
	}
}

func TestAPreparedTransactionCannotBeAsked(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_prepared_transactions": "2"}})
	dsn := server.DSN("postgres")
	clitest.Execute(t, clitest.Connect(t, dsn, "psql"), "BEGIN; SELECT pg_advisory_xact_lock(2, 3); PREPARE TRANSACTION 'left'")
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "ask", "2:3")
	assert.Equal(t, program.ExitUnavailable, code)
	assert.Equal(t, "2:3: a prepared transaction holds it, which has no process to ask\n", stdout)
	assert.Contains(t, stderr, "ROLLBACK PREPARED")
	assert.NotContains(t, stderr, "terminate", "it has no session")
}
