package lockcmd_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

var orders = namespace.Must(2, "order")

// openLocker makes this process one that answers as the service billing.
func openLocker(t *testing.T, dsn string, answer introspect.Config) *advisory.Locker {
	t.Helper()
	answer.Service = "billing"
	l, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, ApplicationName: "billing-app", Answer: answer})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// until runs the program until its output matches, and returns that. Its environment says
// nothing of namespaces. A look waits half a second for the answers of processes: a busy process is late at times.
func until(t *testing.T, dsn, pattern string, args ...string) string {
	t.Helper()
	match := regexp.MustCompile(pattern)
	stdout, _, _ := untilGood(t, dsn, func(stdout, _ string, _ int) bool { return match.MatchString(stdout) }, args...)
	return stdout
}

// untilCode is until for an exit code.
func untilCode(t *testing.T, dsn string, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, _ = untilGood(t, dsn, func(_, _ string, code int) bool { return code == want }, args...)
	return stdout, stderr
}

// untilGood is until for all that a program leaves behind.
func untilGood(t *testing.T, dsn string, good func(stdout, stderr string, code int) bool, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	await.Until(t, await.Soon, func() bool {
		stdout, stderr, code = clitest.Run(t, clitest.At(dsn), args...)
		return good(stdout, stderr, code)
	}, func() string { return fmt.Sprintf("%s: exit %d\n%s%s", args, code, stdout, stderr) })
	return stdout, stderr, code
}

func TestTheListShowsWhatProcessesTellOfTextKeys(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	billing := openLocker(t, dsn, introspect.Config{})
	key, err := orders.Text("o-9f3c")
	require.NoError(t, err)
	_, err = billing.With(advisory.Options{Label: "nightly"}).Acquire(t.Context(), key)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer func() { cancel(); waiting.Wait() }()
	for range 3 { // one of them waits at the server
		waiting.Go(func() { _, _ = billing.Acquire(ctx, key) })
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	me := fmt.Sprintf("billing@%s:%d", host, os.Getpid())
	line := `(?m)^order/o-9f3c +exclusive +` + regexp.QuoteMeta(me) + ` +[\d.ms]+ +3 +[\d.ms]+ +\d+ +nightly$`
	until(t, dsn, line, "ls")
	until(t, dsn, line, "ls", "order/")
	until(t, dsn, line, "ls", "order/o-9f3c")
	until(t, dsn, line, "ls", "--app", "BILLING@", "--longer-than", "300ms", "--waiting")
	assert.NotContains(t, until(t, dsn, "KEY", "ls", "order/o-9*", "--app", "shop"), "o-9")

	text := until(t, dsn, "(?s)is held by "+regexp.QuoteMeta(me)+"(.*is waited for by "+regexp.QuoteMeta(me)+"){3}", "status", "order/o-9f3c") // a busy process can answer too late
	assert.Contains(t, text, "order/o-9f3c is held by "+me+", backend ")
	assert.Contains(t, text, "label nightly")
	assert.Equal(t, 3, strings.Count(text, "is waited for by "+me), text)

	child := clitest.Start(t, clitest.At(dsn), "run", "--namespace", "order=2", "order/o-9f3c", "--", "true")
	until(t, dsn, `(?m)^order/o-9f3c .* 4 `, "ls")
	child.Signal(syscall.SIGINT)
	child.Wait()

	for args, want := range map[string]string{
		"ls agent/":       `unknown namespace "agent", and no process that answers uses it`,
		"ls agent/1":      "say its number with --namespace",
		"status agent/1":  "say its number with --namespace",
		"try order/1":     "say its number with --namespace", // a lock is not taken by hearsay
		"run order/1 -- ": "give the command",
	} {
		_, stderr, code := clitest.Run(t, clitest.At(dsn), strings.Fields(args)...)
		assert.Equal(t, program.ExitUsage, code, args)
		assert.Contains(t, stderr, want)
	}
}

func TestASemaphoreWhoseSlotsAreTakenIsNotFree(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, answers := range []bool{true, false} {
		billing := openLocker(t, dsn, introspect.Config{Off: !answers})
		key := orders.ID(map[bool]int64{true: 1, false: 2}[answers])
		for range 2 {
			_, err := billing.AcquireSlot(t.Context(), key, 2)
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { _, _ = billing.AcquireSlot(ctx, key, 2) })
		taken := map[bool]string{true: "2 of 2 slots taken", false: "2 slots taken"}[answers]
		env := clitest.At(dsn, "PGLATCH_NAMESPACES=order=2")
		await.Until(t, await.Soon, func() bool {
			stdout, _, code := clitest.Run(t, env, "status", key.String())
			return code == 0 && strings.Contains(stdout, key.String()+" is a semaphore: "+taken) && strings.Contains(stdout, "is waited for by")
		}, func() string { return taken })
		if answers {
			until(t, dsn, `(?m)^order/1 +2 of 2 slots +billing@.* and 1 more +[\d.ms]+ +1 `, "ls")
		}
		cancel()
		waiting.Wait()
	}
}

func TestHiddenEntitiesAreShownAsHidden(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	billing := openLocker(t, dsn, introspect.Config{HideEntities: true})
	_, err := billing.With(advisory.Options{Label: "secret"}).Acquire(t.Context(), orders.ID(42))
	require.NoError(t, err)
	text := until(t, dsn, `(?m)^order/… +exclusive +billing@`, "ls")
	assert.NotContains(t, text, "secret")
	assert.NotContains(t, text, "42 ")
	until(t, dsn, `held by billing@`, "status", "order/42") // who knows it may ask
}

// The caller waits on another session than the one that holds: PostgreSQL sees no cycle.
func TestTreeNamesADeadlockAcrossProcesses(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	other := clitest.Connect(t, dsn, "other")
	clitest.Execute(t, other, "SELECT pg_advisory_lock(2, 2)")
	l := openLocker(t, dsn, introspect.Config{})
	first, err := l.Acquire(t.Context(), orders.ID(1))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(first.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = l.Acquire(ctx, orders.ID(2))
	}()
	t.Cleanup(func() { cancel(); <-ended })
	until(t, dsn, `order/2 .* 1 `, "ls")
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "tree")
	require.Zero(t, code, stderr)
	assert.NotContains(t, stdout, "deadlock", "control: one waits for the other")

	clitest.WaitFor(t, dsn, other, "SELECT pg_advisory_lock(2, 1)")
	until(t, dsn, `critical deadlock order/\d, order/\d: Deadlock`, "tree")
	var d struct{ Deadlocks []monitor.Verdict }
	await.Until(t, await.Soon, func() bool { // between two wait steps, and before the process answers, no cycle is seen
		stdout, _, _ = clitest.Run(t, clitest.At(dsn), "tree", "--json")
		d = clitest.Decode[struct{ Deadlocks []monitor.Verdict }](t, stdout)
		return len(d.Deadlocks) > 0
	}, func() string { return stdout })
	require.Len(t, d.Deadlocks, 1)
	assert.Len(t, d.Deadlocks[0].Evidence, 2)
}

func TestAPlainNameIsOneLockInEveryCommandAndInGo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "run", "nightly-report", "-c", "echo $PGLATCH_KEY")
	assert.Zero(t, code, stderr)
	assert.Equal(t, "name/nightly-report\n", stdout)

	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	defer locker.Close()
	key, err := namespace.Must(32767, "name").Text("nightly-report")
	require.NoError(t, err)
	require.NoError(t, locker.Do(t.Context(), key, func(context.Context) error {
		for args, want := range map[string]int{
			"run -n nightly-report -- true":                          75,
			"run -n --namespace agent=1 name/nightly-report -- true": 75,
			"run -n nightly -- true":                                 0,
			"status nightly-report":                                  0,
			"status nightly":                                         3,
		} {
			_, stderr, code := clitest.Run(t, clitest.At(dsn), strings.Fields(args)...)
			assert.Equal(t, want, code, "%s: %s", args, stderr)
		}
		stdout, _, _ := clitest.Run(t, clitest.At(dsn), "ls", "name/")
		assert.Contains(t, stdout, "name") // the namespace; the entity if the process answers in time
		return nil
	}))
}

func TestACommandAndAProgramOnOneEntityExcludeEachOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	agents := namespace.Must(1, "agent")
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	none := func(context.Context) error { return nil }

	p := clitest.Start(t, clitest.At(dsn), "run", "--namespace", "agent=1", "agent/42", "-c", `echo pid=$$; exec sleep 1000`)
	p.Number("pid")
	ran, err := locker.DoOrSkip(t.Context(), agents.ID(42), none)
	require.NoError(t, err)
	assert.False(t, ran)
	p.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, p.Wait())
	require.NoError(t, locker.Do(t.Context(), agents.ID(42), func(context.Context) error {
		_, stderr, code := clitest.Run(t, clitest.At(dsn), "run", "-n", "--namespace", "agent=1", "agent/42", "--", "true")
		assert.Equal(t, 75, code, stderr)
		return nil
	}))
}

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }

func TestScript(t *testing.T) { clitest.Scripts(t) }

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
