package lockcmd_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/monitor"
)

const names = "PGLATCH_NAMESPACES=agent=1,order=2"

// queue makes a holder of agent/42 that waits for order/7, whose holder others wait
// for: first → order/7 ← second; third, fourth → agent/42 ← first.
func queue(t *testing.T, dsn string) (pids []uint32) {
	t.Helper()
	first, second := clitest.Connect(t, dsn, "first"), clitest.Connect(t, dsn, "second")
	third, fourth := clitest.Connect(t, dsn, "third"), clitest.Connect(t, dsn, "fourth")
	clitest.Execute(t, first, "SELECT pg_advisory_lock(1, 42)")
	clitest.Execute(t, second, "SELECT pg_advisory_lock(2, 7)")
	clitest.WaitFor(t, dsn, third, "SELECT pg_advisory_lock(1, 42)")
	clitest.WaitFor(t, dsn, fourth, "SELECT pg_advisory_lock_shared(1, 42)")
	clitest.WaitFor(t, dsn, first, "SELECT pg_advisory_lock(2, 7)")
	return []uint32{first.PgConn().PID(), second.PgConn().PID(), third.PgConn().PID(), fourth.PgConn().PID()}
}

func TestLsListsHoldersAndWaitersInEachFormat(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	stdout, _, code := clitest.Run(t, clitest.At(dsn), "ls", "-o", "jsonl")
	assert.Zero(t, code)
	assert.Empty(t, stdout)
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "ls")
	assert.Zero(t, code)
	assert.Regexp(t, `^KEY .*\n$`, stdout, "the header alone")
	assert.Contains(t, stderr, `msg="no locks are held"`)
	_, stderr, _ = clitest.Run(t, clitest.At(dsn), "ls", "-q")
	assert.Empty(t, stderr)
	pids := queue(t, dsn)
	clitest.Execute(t, clitest.Connect(t, dsn, "fifth"), "SELECT pg_advisory_lock_shared(12345)")

	env := clitest.At(dsn, names)
	stdout, stderr, code = clitest.Run(t, env, "ls", "--json")
	require.Zero(t, code, stderr)
	s := clitest.Decode[monitor.Snapshot](t, stdout)
	require.Len(t, s.Locks, 6)
	var got []string
	for _, l := range s.Locks {
		got = append(got, fmt.Sprintf("%s %s %v %v", l.ApplicationName, l.Key.Text, l.Granted, l.BlockedBy))
	}
	assert.Equal(t, []string{
		"fifth @12345 true []",
		"first agent/42 true []",
		fmt.Sprintf("third agent/42 false [%d]", pids[0]),
		fmt.Sprintf("fourth agent/42 false [%d %d]", pids[0], pids[2]),
		"second order/7 true []",
		fmt.Sprintf("first order/7 false [%d]", pids[1]),
	}, got)

	stdout, _, _ = clitest.Run(t, env, "ls", "-o", "jsonl")
	all := clitest.DecodeLines[monitor.Lock](t, stdout)
	require.Len(t, all, 6)
	assert.Equal(t, "order/7", all[5].Key.Text)

	stdout, stderr, code = clitest.Run(t, env, "ls")
	require.Zero(t, code)
	assert.Empty(t, stderr)
	text := strings.Split(stdout, "\n")
	assert.Regexp(t, `^KEY +MODE +HOLDER +HELD +WAITERS +LONGEST +PID +LABEL$`, text[0])
	require.Len(t, text, 5, "one line for each key")
	assert.Regexp(t, `^@12345 +shared +fifth +(-|≥\S+) +- +- +\d+ +-$`, text[1])
	assert.Regexp(t, fmt.Sprintf(`^agent/42 +exclusive +first +- +2 +≥[\d.ms]+ +%d +-$`, pids[0]), text[2])
	assert.Regexp(t, fmt.Sprintf(`^order/7 +exclusive +second +(-|≥\S+) +1 +≥[\d.ms]+ +%d +-$`, pids[1]), text[3])

	stdout, _, _ = clitest.Run(t, env, "ls", "--json", "--sort", "waiters")
	var keys []string
	for _, k := range clitest.Decode[struct{ Keys []struct{ Key string } }](t, stdout).Keys {
		keys = append(keys, k.Key)
	}
	assert.Equal(t, []string{"agent/42", "order/7", "@12345"}, keys)
	sorted := clitest.Decode[monitor.Snapshot](t, stdout).Locks
	assert.Equal(t, "agent/42", sorted[0].Key.Text)
	assert.Equal(t, "@12345", sorted[5].Key.Text)

	stdout, stderr, code = clitest.Run(t, env, "ls", "1:7")
	assert.Zero(t, code)
	assert.Regexp(t, `^KEY .*\n$`, stdout)
	assert.Contains(t, stderr, `msg="locks are held, and none of them is shown: see the arguments" locks=6`)

	for args, want := range map[string]int{
		"--waiting":                         5,
		"--namespace order":                 2,
		"--namespace 2":                     2,
		"--namespace order --namespace 1":   5,
		"--namespace agent=9":               6, // pairs 1 and 2 have no name then
		"--namespace agent=9 --namespace 1": 3,
		"--namespace 3":                     0,
		"agent/":                            3,
		"agent/4*":                          3,
		"1:":                                0, // they have a name
		"agent/42":                          3,
		"1:42":                              3,
		"agent/4":                           0,
		"--app FOURTH":                      3, // all of its key
		"--app nobody":                      0,
		"--longer-than 1h":                  0,
	} {
		stdout, stderr, _ = clitest.Run(t, env, append([]string{"ls", "-o", "jsonl"}, strings.Fields(args)...)...)
		assert.Len(t, clitest.DecodeLines[monitor.Lock](t, stdout), want, "%s: %s", args, stderr)
	}
}

func TestColourIsOnlyForThoseWhoWantIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, c := range []struct {
		env  []string
		args string
		want bool
	}{
		{nil, "ls", false}, // not a terminal
		{nil, "ls --color always", true},
		{[]string{"NO_COLOR=1"}, "ls --color always", true}, // the flag is about this run
		{nil, "ls --color always --json", false},
		{nil, "ls --color always -o jsonl", false},
	} {
		stdout, _, code := clitest.Run(t, clitest.At(dsn, c.env...), strings.Fields(c.args)...)
		assert.Zero(t, code)
		assert.Equal(t, c.want, strings.Contains(stdout, "\x1b["), c.args)
	}
	for env, want := range map[string]bool{"TERM=xterm": true, "NO_COLOR=1": false, "TERM=dumb": false} {
		stdout, code := onTerminal(t, clitest.At(dsn, "TERM=xterm", env), "ls")
		assert.Zero(t, code)
		assert.Contains(t, stdout, "LONGEST")
		assert.Equal(t, want, strings.Contains(stdout, "\x1b["), env)
	}
}

// onTerminal runs the program on a terminal, by script(1) of util-linux.
func onTerminal(t *testing.T, env []string, args ...string) (stdout string, code int) {
	t.Helper()
	p := startOnTerminal(t, env, args...)
	code = p.Wait()
	return p.Stdout.String(), code
}

func startOnTerminal(t *testing.T, env []string, args ...string) *clitest.Program {
	t.Helper()
	script, err := exec.LookPath("script")
	require.NoError(t, err, "install util-linux (apt-get install bsdutils)")
	return clitest.StartCommand(t, env, script, "--quiet", "--return", "--command", "exec "+clitest.Binary+" "+strings.Join(args, " "), "/dev/null")
}

func TestStatusTellsHeldFromFreeByItsExitCode(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	type document struct {
		Key              string
		Held             bool
		Holders, Waiters []monitor.Lock
	}
	dsn := pgtest.DSN(t)
	pids := queue(t, dsn)
	env := clitest.At(dsn, names)
	for _, key := range []string{"agent/42", "1:42", "--key1 1 --key2 42"} {
		stdout, stderr, code := clitest.Run(t, env, strings.Fields("status --json "+key)...)
		require.Zero(t, code, stderr)
		d := clitest.Decode[document](t, stdout)
		assert.True(t, d.Held)
		require.Len(t, d.Holders, 1)
		assert.Equal(t, pids[0], d.Holders[0].PID)
		require.Len(t, d.Waiters, 2)
		assert.Equal(t, pids[3], d.Waiters[1].PID)
	}
	stdout, _, code := clitest.Run(t, env, "status", "agent/42")
	assert.Zero(t, code)
	assert.Contains(t, stdout, fmt.Sprintf("agent/42 is held by backend %d (first), exclusive, active, in a session since 2", pids[0]))
	assert.Contains(t, stdout, fmt.Sprintf("agent/42 is waited for by backend %d (fourth), shared, active, for ", pids[3]))

	// The other form with the same bits, and the other namespace's entity, are other locks.
	for _, key := range []string{"agent/41", "@4294967338", "order/42"} {
		stdout, stderr, code := clitest.Run(t, env, "status", key)
		assert.Equal(t, program.ExitFree, code, stderr)
		assert.Equal(t, key+" is free\n", stdout)
		assert.Empty(t, stderr)
		stdout, _, code = clitest.Run(t, env, "status", "-o", "jsonl", key)
		assert.Equal(t, program.ExitFree, code)
		assert.Equal(t, []document{{Key: key, Holders: []monitor.Lock{}, Waiters: []monitor.Lock{}}}, clitest.DecodeLines[document](t, stdout))
	}
}

func TestTreeShowsWhoWaitsForWhom(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	stdout, _, code := clitest.Run(t, clitest.At(dsn, names), "tree")
	assert.Zero(t, code)
	assert.Empty(t, stdout)
	queue(t, dsn)
	clitest.Execute(t, clitest.Connect(t, dsn, "alone"), "SELECT pg_advisory_lock(1, 1)")
	stdout, _, code = clitest.Run(t, clitest.At(dsn, names), "tree")
	assert.Zero(t, code)
	assert.Equal(t, `order/7
● held by second
└─ waits: first
   └─ agent/42
      ● held by first
      ├─ waits: third
      └─ waits: fourth
`, regexp.MustCompile(`backend \d+ \((\w+)\).*`).ReplaceAllString(stdout, "$1"))

	type node struct {
		Key     monitor.Key
		Cycle   bool
		Holders []monitor.Lock
		Waiters []struct {
			Lock  monitor.Lock
			Holds []struct{ Waiters []struct{ Lock monitor.Lock } }
		}
	}
	stdout, _, _ = clitest.Run(t, clitest.At(dsn, names), "tree", "-o", "jsonl")
	roots := clitest.DecodeLines[node](t, stdout)
	require.Len(t, roots, 1)
	assert.Equal(t, "order/7", roots[0].Key.Text)
	assert.Equal(t, "third", roots[0].Waiters[0].Holds[0].Waiters[0].Lock.ApplicationName)
	stdout, _, _ = clitest.Run(t, clitest.At(dsn, names), "tree", "--json")
	assert.Len(t, clitest.Decode[struct{ Trees []node }](t, stdout).Trees, 1)
}

func TestTreeShowsACycleOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	one, two, behind := clitest.Connect(t, dsn, "one"), clitest.Connect(t, dsn, "two"), clitest.Connect(t, dsn, "behind")
	clitest.Execute(t, one, "SET deadlock_timeout = '10min'; SELECT pg_advisory_lock(1, 1)")
	clitest.Execute(t, two, "SET deadlock_timeout = '10min'; SELECT pg_advisory_lock(1, 2)")
	clitest.Execute(t, behind, "SET deadlock_timeout = '10min'")
	clitest.WaitFor(t, dsn, one, "SELECT pg_advisory_lock(1, 2)")
	clitest.WaitFor(t, dsn, two, "SELECT pg_advisory_lock(1, 1)")
	clitest.WaitFor(t, dsn, behind, "SELECT pg_advisory_lock(1, 1)")
	stdout, _, code := clitest.Run(t, clitest.At(dsn), "tree")
	assert.Zero(t, code)
	tree, deadlock, _ := strings.Cut(stdout, "\ncritical ")
	assert.Regexp(t, `^deadlock 1:\d, 1:\d: Deadlock: one and two wait for each other\.`, deadlock)
	stdout = tree
	assert.Equal(t, `1:1 (a cycle of waits)
● held by one
├─ waits: two
│  └─ 1:2
│     ● held by two
│     └─ waits: one
└─ waits: behind
`, regexp.MustCompile(`backend \d+ \((\w+)\).*`).ReplaceAllString(stdout, "$1"))
}

func TestWatchWritesALineForEachChange(t *testing.T) {
	t.Parallel()
	type change struct {
		Change string
		Lock   monitor.Lock
	}
	dsn := pgtest.DSN(t)
	holder := clitest.Connect(t, dsn, "holder")
	clitest.Execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	p := clitest.Start(t, clitest.At(dsn, names), "watch", "--interval", "250ms")
	p.Saying(&p.Stdout, "\n")
	second := clitest.Connect(t, dsn, "second")
	clitest.WaitFor(t, dsn, second, "SELECT pg_advisory_lock(1, 42)")
	p.Saying(&p.Stdout, `"waiting"`)
	clitest.Execute(t, holder, "SELECT pg_advisory_unlock(1, 42)")
	taken := regexp.MustCompile(`(?m)^.*"held".*"second".*$`) // its session can still be active: it gets the lock before it wakes up
	clitest.Eventually(t, func() bool { return taken.MatchString(p.Stdout.String()) }, p.Stdout.String)
	clitest.Execute(t, clitest.Connect(t, dsn, "killer"), fmt.Sprintf("SELECT pg_terminate_backend(%d)", second.PgConn().PID()))
	clitest.Eventually(t, func() bool { return strings.Count(p.Stdout.String(), `"released"`) == 2 }, p.Stdout.String)
	p.Signal(syscall.SIGINT)
	assert.Zero(t, p.Wait())
	assert.Empty(t, p.Stderr.String())
	var got []string
	for _, c := range clitest.DecodeLines[change](t, p.Stdout.String()) {
		got = append(got, c.Change+" "+c.Lock.ApplicationName)
	}
	assert.Equal(t, []string{"held holder", "waiting second", "released holder", "held second", "released second"}, got)
}

func TestWatchGoesOnWhenTheServerComesBack(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	clitest.Execute(t, clitest.Connect(t, server.DSN(""), "before"), "SELECT pg_advisory_lock(1, 1)")
	p := clitest.Start(t, clitest.At(server.DSN("")), "watch", "--interval", "250ms", "--log-format", "json")
	p.Saying(&p.Stdout, `"before"`)
	require.NoError(t, server.Stop(t.Context(), pgserver.Fast))
	p.Saying(&p.Stderr, "lock_snapshot_failed")
	require.NoError(t, server.Start(t.Context()))
	p.Saying(&p.Stderr, "lock_snapshot_recovered")
	clitest.Execute(t, clitest.Connect(t, server.DSN(""), "after"), "SELECT pg_advisory_lock(1, 1)")
	p.Saying(&p.Stdout, `"after"`)
	p.Signal(syscall.SIGTERM)
	assert.Zero(t, p.Wait())
}

func TestAnInterruptedCommandEndsWith128AndTheSignal(t *testing.T) {
	t.Parallel()
	p := clitest.Start(t, clitest.At("postgres://u@"+clitest.SilentHost(t)+"/d?sslmode=disable"), "doctor", "--connect-timeout", "1h", "-v")
	p.Saying(&p.Stderr, "connecting")
	p.Signal(syscall.SIGTERM)
	assert.Equal(t, 128+int(syscall.SIGTERM), p.Wait())
	assert.Contains(t, p.Stderr.String(), "pglatch: ended by signal: terminated\n")
}

func TestAStandbyDoesNotHaveThePrimarysLocks(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	clitest.Execute(t, clitest.Connect(t, primary.DSN("postgres"), "holder"), "SELECT pg_advisory_lock(1, 1)")
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	for _, args := range [][]string{{"ls"}, {"tree"}, {"status", "1:1"}, {"ls", "--json"}} {
		stdout, stderr, code := clitest.Run(t, clitest.At(standby.DSN("postgres")), args...)
		assert.Equal(t, program.ExitUnavailable, code, args)
		assert.Contains(t, stderr, "this server is a standby", args)
		assert.NotContains(t, stdout, "is free", args)
		if len(args) == 2 && args[1] == "--json" {
			assert.True(t, clitest.Decode[struct{ Server monitor.Server }](t, stdout).Server.Standby)
		}
	}
	_, stderr, code := clitest.Run(t, clitest.At(primary.DSN("postgres")), "ls")
	assert.Zero(t, code, "control: "+stderr)
}
