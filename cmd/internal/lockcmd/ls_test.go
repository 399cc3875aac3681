package lockcmd_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/fleetreader"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/lease"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
	oncepg "github.com/pglatch/pglatch/once/postgres"
	"github.com/pglatch/pglatch/turns"
)

// mute makes a process answer no question: only tables name its locks.
var mute = introspect.Config{Off: true}

// runs waits for the end of what a test started.
func runs(t *testing.T, work func(ctx context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
}

// busy is a database in which everything runs, by processes that answer nothing. Names are hostile.
func busy(t *testing.T) (dsn string, pool *pgxpool.Pool) {
	t.Helper()
	dsn = pgtest.DSN(t)
	pool = dbtest.Pool(t, dsn)

	backend, err := shardspg.New(shardspg.Config{DSN: dsn, Namespace: namespace.Must(7, "tenant"), CreateTable: true, Answer: mute})
	require.NoError(t, err)
	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Identity: "web-3<i>", Shards: []string{"acme", "<b>x\u202e"}})
	require.NoError(t, err)
	runs(t, func(ctx context.Context) error {
		return node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
	})
	await.Until(t, await.Patience, func() bool { return len(node.Owned()) == 2 })

	ticks, err := oncepg.New(oncepg.Config{Pool: pool, CreateTable: true})
	require.NoError(t, err)
	runner, err := once.New(once.Config{Store: ticks, Window: time.Hour})
	require.NoError(t, err)
	now := time.Now().Truncate(time.Minute)
	for _, ago := range []int{9, 8, 7, 6, 4, 3, 2, 1} { // but not 5
		_, err := runner.Do(t.Context(), "report", now.Add(-time.Duration(ago)*time.Minute), func(context.Context) error { return nil })
		require.NoError(t, err)
	}
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	began, committed, finish := make(chan struct{}), make(chan error, 1), make(chan struct{})
	go func() {
		_, err := oncepg.DoTx(context.WithoutCancel(t.Context()), tx, "report", now, func(context.Context) error { close(began); <-finish; return nil })
		committed <- err
	}()
	<-began
	t.Cleanup(func() {
		close(finish)
		assert.NoError(t, <-committed)
		assert.NoError(t, tx.Rollback(context.WithoutCancel(t.Context())))
	})

	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, ApplicationName: "chat-1", Answer: mute})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	box, err := turns.Open(t.Context(), turns.Config{Pool: pool, Name: "chat", Namespace: namespace.Must(8, "conversation"), Locker: locker, Node: "chat-1", Finish: -1})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := box.Send(t.Context(), tx, namespace.Must(8, "conversation").ID(42), turns.Message{Body: []byte("x")})
		return err
	}))
	handling := make(chan struct{})
	runs(t, func(ctx context.Context) error {
		return box.Serve(ctx, func(ctx context.Context, turn *turns.Turn) error {
			close(handling)
			<-ctx.Done()
			return turn.Commit(context.WithoutCancel(ctx), func(pgx.Tx) error { return nil })
		})
	})
	<-handling

	leases, err := leasepg.New(leasepg.Config{Pool: pool})
	require.NoError(t, err)
	require.NoError(t, leases.Migrate(t.Context()))
	_, err = leases.Acquire(t.Context(), lease.AcquireRequest{Name: "printer", Holder: "kiosk-1", TTL: time.Hour})
	require.NoError(t, err)
	return dsn, pool
}

// Keys of shards, ticks and nodes of mailboxes are hashes. Their tables name them, if no process does.
func TestNoKeyIsAnonymousThatATableNames(t *testing.T) {
	t.Parallel()
	dsn, _ := busy(t)
	var stdout string
	await.Until(t, await.Patience, func() bool {
		var stderr string
		var code int
		stdout, stderr, code = clitest.Run(t, clitest.At(dsn), "ls")
		require.Zero(t, code, stderr)
		return strings.Contains(stdout, "LEASE")
	})
	assert.NotContains(t, stdout, "@", "a key without a name")
	for _, want := range []string{
		`(?m)^tenant/acme +shard `, `(?m)^members of tenant=7 +shard `, `(?m)^tenant/<b>x\? +shard `,
		`(?m)^report at [-\d]+ [:\d]+ +tick `, `(?m)^mailbox chat, node chat-1/\S+ +mailbox `, `(?m)^conversation/42 +exclusive +chat-1 `,
		`(?m)^tenant=7 +web-3<i> +2 +2 +0 +-$`, `(?m)^report +[-\d]+ [:\d]+ +ran +\S.* \d, the last `, `(?m)^chat +1 +0 +- +1 +0 +0 +1$`, `(?m)^printer +held +kiosk-1 +1 +(59m|1h)`,
	} {
		assert.Regexp(t, want, stdout)
	}

	names, err := monitor.Open(monitor.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(names.Close)
	s, err := names.Snapshot(t.Context())
	require.NoError(t, err)
	anonymous := 0
	for _, l := range s.Locks {
		anonymous += strings.Count(l.Key.Text, "@")
	}
	assert.GreaterOrEqual(t, anonymous, 4, "control: without the tables they are numbers")
}

func TestAReaderWithoutRightsOnTablesSaysSo(t *testing.T) {
	t.Parallel()
	dsn, _ := busy(t)
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	cc.RuntimeParams["role"] = "pg_monitor"
	reader := fleetreader.New(cc)
	t.Cleanup(reader.Close)
	f, err := reader.Read(t.Context())
	require.NoError(t, err)
	assert.Len(t, f.Problems, 4)
	assert.Empty(t, f.Locks)
	for _, p := range f.Problems {
		assert.Contains(t, p, "may not read the tables of")
	}
}

func TestNoAllClearComesFromTablesThatWereNotRead(t *testing.T) {
	t.Parallel()
	dsn := loseNode(t)
	weak := dsn + "&options=-c%20role%3Dpg_monitor"
	const why = "the monitor's role may not read the tables of turns: GRANT SELECT on them, and USAGE on their schema, shows them"
	stdout, stderr, code := clitest.Run(t, clitest.At(weak), "verdicts", "-o", "json")
	require.Zero(t, code, stderr)
	assert.Contains(t, stderr, why)
	assert.Equal(t, []string{why}, clitest.Decode[struct{ Problems []string }](t, stdout).Problems)
	_, stderr, _ = clitest.Run(t, clitest.At(weak), "verdicts")
	assert.Contains(t, stderr, why)
	assert.Contains(t, stderr, "nothing is wrong in what was read")
	watched := clitest.Start(t, clitest.At(weak), "verdicts", "--watch", "--exit-code")
	await.Until(t, await.Soon, func() bool { return strings.Contains(watched.Stderr.String(), why) }, watched.Stderr.String)
	watched.Signal(syscall.SIGINT)
	assert.Equal(t, 77, watched.Wait(), "%s", &watched.Stderr)
	_, stderr, code = clitest.Run(t, clitest.At(weak), "verdicts", "--exit-code", "--severity", "critical")
	assert.Equal(t, 77, code, "a verdict about turns may be missing: %s", stderr)
	assert.Contains(t, stderr, "whether anything is wrong with their content is unknown")
	for _, args := range [][]string{{"ls"}, {"ls", "1:42"}, {"ls", "--waiting"}} {
		_, stderr, code = clitest.Run(t, clitest.At(weak), args...)
		assert.Zero(t, code, stderr)
		assert.Equal(t, 1, strings.Count(stderr, why), "%v", args)
	}
	stdout, _, _ = clitest.Run(t, clitest.At(weak), "ls", "1:42", "-o", "json")
	assert.Equal(t, []string{why}, clitest.Decode[struct{ Problems []string }](t, stdout).Problems)

	stdout, stderr, code = clitest.Run(t, clitest.At(dsn), "verdicts", "-o", "json")
	require.Zero(t, code, stderr)
	assert.NotContains(t, stderr, "tables were not read", "control: the owner's role")
	assert.Empty(t, clitest.Decode[struct{ Problems []string }](t, stdout).Problems)
	_, stderr, code = clitest.Run(t, clitest.At(dsn), "verdicts", "--exit-code")
	assert.Equal(t, 3, code, "control: with the right, the verdict is there: %s", stderr)
	_, stderr, _ = clitest.Run(t, clitest.At(dsn), "ls", "1:42")
	assert.NotContains(t, stderr, "tables were not read", "control")
}

func TestTablesThatDoNotAnswerAreNoAllClear(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	migration := clitest.Connect(t, dsn, "migration")
	clitest.Execute(t, migration, turns.Schema())
	clitest.Execute(t, migration, "BEGIN")
	clitest.Execute(t, migration, "LOCK TABLE pglatch_turns.nodes IN ACCESS EXCLUSIVE MODE")
	_, stderr, code := clitest.Run(t, clitest.At(dsn), "verdicts", "--exit-code")
	assert.Equal(t, 69, code, stderr)
	assert.Contains(t, stderr, "tables were not read")

	clitest.Execute(t, migration, "ROLLBACK")
	await.Until(t, await.Soon, func() bool {
		_, stderr, code = clitest.Run(t, clitest.At(dsn), "verdicts", "--exit-code")
		return code == 0
	}, func() string { return "control: " + stderr })
}

// loseNode leaves a turn of a node that is gone: nobody holds the node's lock.
func loseNode(t *testing.T) (dsn string) {
	t.Helper()
	dsn = pgtest.DSN(t)
	conn := clitest.Connect(t, dsn, "test")
	for _, sql := range []string{
		turns.Schema(),
		"SELECT pglatch_turns.open_mailbox('chat', 'conversation=8', 1000, 1000, '0', false, '1 day')",
		"INSERT INTO pglatch_turns.nodes (mailbox, node, key) VALUES ('chat', 'chat-1/X', -7)",
		"INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after, token, node, claimed_at, attempts) VALUES ('chat', '42', 'running', now(), 0, 1, 'chat-1/X', now() - interval '1 minute', 1)",
	} {
		clitest.Execute(t, conn, sql)
	}
	return dsn
}

func TestOneLookFindsATurnWhoseNodeIsGone(t *testing.T) {
	t.Parallel()
	dsn := loseNode(t)
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "verdicts", "--exit-code")
	assert.Equal(t, 3, code, stderr)
	assert.Contains(t, stdout, "critical turn-stuck conversation/42: ")
	requireNodes(t, dsn, 0)

	conn := clitest.Connect(t, dsn, "chat-1")
	clitest.Execute(t, conn, "SELECT pg_advisory_lock(-7)")
	_, stderr, code = clitest.Run(t, clitest.At(dsn), "verdicts", "--exit-code")
	assert.Zero(t, code, "control: its node runs")
	assert.Contains(t, stderr, "nothing is wrong")
	requireNodes(t, dsn, 1)
}

// requireNodes requires that lists say how many nodes serve the mailbox.
func requireNodes(t *testing.T, dsn string, n int) {
	t.Helper()
	for pattern, args := range map[string][]string{`(?m)^chat .* %d$`: {"ls"}, `(?m)^chat .* %d +\S+$`: {"turns", "ls"}} {
		stdout, stderr, code := clitest.Run(t, clitest.At(dsn), args...)
		require.Zero(t, code, stderr)
		require.Regexp(t, fmt.Sprintf(pattern, n), stdout)
	}
}

const names = "PGLATCH_NAMESPACES=agent=1,order=2"

func TestTheListsShowOneHolderAndTwoWaitersOfThreeLockers(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		env := clitest.At(dsn, names)
		queueOfLockers(t, dsn, namespace.Must(1, "agent").ID(42))

		var stdout string
		list := func(args ...string) func() bool { // a waiter is in no queue for a moment after each wait step
			return func() bool {
				var code int
				stdout, _, code = clitest.Run(t, env, args...)
				require.Zero(t, code)
				require.NotContains(t, stdout, "@", "an unknown lock")
				return strings.Contains(stdout, "second")
			}
		}
		said := func() string { return stdout }
		ls := list("ls", "-o", "jsonl")
		await.Until(t, await.Soon, func() bool { // either waiter can be between two wait steps
			if !ls() {
				return false
			}
			var got []string
			for _, l := range clitest.DecodeLines[monitor.Lock](t, stdout) {
				got = append(got, fmt.Sprintf("%s %s %v", l.ApplicationName, l.Key.Text, l.Granted))
			}
			return slices.Equal([]string{"holder agent/42 true", "first agent/42 false", "second agent/42 false"}, got)
		}, said)

		tree := list("tree")
		await.Until(t, await.Soon, func() bool { // the server shows the blocker of a waiter a moment after the waiter
			return tree() && regexp.MustCompile(`backend \d+ \((\w+)\).*`).ReplaceAllString(stdout, "$1") == "agent/42\n● held by holder\n├─ waits: first\n└─ waits: second\n"
		}, said)

		status := list("status", "--json", "agent/42")
		await.Until(t, await.Soon, func() bool {
			if !status() {
				return false
			}
			s := clitest.Decode[struct{ Holders, Waiters []monitor.Lock }](t, stdout)
			return len(s.Holders) == 1 && len(s.Waiters) == 2
		}, said)
	})
}

func TestTheQueryOfKeyShowsTheWholeQueue(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	key := namespace.Must(1, "agent").ID(42)
	holder, first, second := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "first"), clitest.Connect(t, dsn, "second")
	turnstile, _ := turnstile.Of(key.Tag()).Single()
	clitest.Execute(t, holder, "SELECT pg_advisory_lock(1, 42)")
	clitest.Execute(t, first, fmt.Sprintf("SELECT pg_advisory_lock(%d)", turnstile))
	clitest.WaitFor(t, dsn, first, "SELECT pg_advisory_lock(1, 42)")
	clitest.WaitFor(t, dsn, second, fmt.Sprintf("SELECT pg_advisory_lock(%d)", turnstile))

	stdout, _, code := clitest.Run(t, clitest.At(dsn, names), "key", "--json", "agent/42")
	require.Zero(t, code)
	d := clitest.Decode[struct {
		Turnstile int64  `json:"turnstile,string"`
		Query     string `json:"query_sql"`
	}](t, stdout)
	assert.Equal(t, turnstile, d.Turnstile)
	rows, err := clitest.Connect(t, dsn, "look").Query(t.Context(), "SELECT lock, application_name, granted FROM ("+strings.TrimSuffix(d.Query, ";")+") AS q")
	require.NoError(t, err)
	var got []string
	for rows.Next() {
		values, err := rows.Values()
		require.NoError(t, err)
		got = append(got, fmt.Sprintf("%v: %v %v", values...))
	}
	require.NoError(t, rows.Err())
	assert.ElementsMatch(t, []string{"key: holder true", "turnstile: first true", "key: first false", "turnstile: second false"}, got)
}

// queueOfLockers has three Lockers, as of three processes, at a key until the test
// ends: the holder, the first and the second.
func queueOfLockers(t *testing.T, dsn string, key namespace.Key) {
	t.Helper()
	m, err := monitor.Open(monitor.Config{DSN: dsn, MinInterval: 1})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	for i, name := range []string{"holder", "first", "second"} {
		locker, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{
			DSN: dsn, ApplicationName: name, Answer: introspect.Config{Off: true}, // only PostgreSQL shows the waiters
		}))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if _, err := locker.Acquire(ctx, key); err == nil {
				<-ctx.Done()
			}
		}()
		t.Cleanup(func() {
			cancel()
			<-ended
			locker.Close()
		})
		await.Until(t, await.Soon, func() bool {
			s, err := m.Snapshot(t.Context())
			return err == nil && len(s.Locks) > i
		}, "%s is not seen", name)
	}
}
