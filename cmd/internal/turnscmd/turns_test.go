package turnscmd_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

var conversations = namespace.Must(14, "conversation")

// A bench is a database with the mailbox "chat".
type bench struct {
	*turns.Mailbox
	t    *testing.T
	pool *pgxpool.Pool
	env  []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dsn := pgtest.DSN(t)
	pool := dbtest.Pool(t, dsn)
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, LocksPerConn: 100})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	box, err := turns.Open(t.Context(), turns.Config{
		Pool: pool, Name: "chat", Namespace: conversations, Locker: locker, MaxAttempts: 1, OnDead: turns.Stop, Pause: time.Millisecond,
	})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	return &bench{box, t, pool, clitest.At(dsn)}
}

func (b *bench) send(id int64, ids ...string) {
	b.t.Helper()
	for _, messageID := range ids {
		require.NoError(b.t, pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := b.Send(b.t.Context(), tx, conversations.ID(id), turns.Message{ID: messageID, Body: []byte("secret text")})
			return err
		}))
	}
}

// serve serves until the test ends.
func (b *bench) serve(handler turns.Handler) {
	b.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(b.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- b.Serve(ctx, handler) }()
	b.t.Cleanup(func() {
		stop()
		assert.NoError(b.t, <-ended)
	})
}

// run runs a command, which ends with a code.
func (b *bench) run(code int, line string) (stdout, stderr string) {
	b.t.Helper()
	stdout, stderr, got := clitest.Run(b.t, b.env, append([]string{"turns"}, strings.Fields(line)...)...)
	require.Equal(b.t, code, got, "%s: %s%s", line, stdout, stderr)
	assert.NotContains(b.t, stdout+stderr, "secret")
	return stdout, stderr
}

func TestPeopleSeeWhatWaitsRunsAndIsDeadAndActOnIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(1, "a", "b")
	b.send(2, "bad", "next")
	stdout, _ := b.run(0, "ls --waiting")
	assert.Regexp(t, `^MAILBOX +NAMESPACE +READY +RUNNING +STOPPED +DEAD +NODES +OLDEST
chat +conversation=14 +2 +0 +0 +0 +0 +\S+

KEY +STATE +MESSAGES +ATTEMPTS +FOR +NODE +LAST ERROR
conversation/1 +ready +2 +0 +\S+ +- +-
conversation/2 +ready +2 +0 +\S+ +- +-
$`, stdout)

	running, causes, done := make(chan int64, 1), make(chan error, 1), make(chan string, 10)
	broken := make(chan struct{}) // closed: "bad" is handled, too
	b.serve(func(ctx context.Context, turn *turns.Turn) error {
		id := turn.Messages()[0].ID
		switch id {
		case "a":
			running <- turn.Messages()[0].Number
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return turn.Commit(context.WithoutCancel(ctx), nil)
		case "bad":
			select {
			case <-broken:
			default:
				return errors.New("no model")
			}
		}
		done <- id
		return nil
	})
	await.Receive(t, await.Soon, running)
	await.Until(t, await.Soon, func() bool {
		stdout, _ = b.run(0, "ls -o json --dead")
		return strings.Contains(stdout, `"stopped": 1`)
	})
	assert.Contains(t, stdout, `"error": "no model"`)
	stdout, _ = b.run(0, "ls chat --running -o jsonl")
	e := clitest.Decode[map[string]any](t, stdout)
	assert.Equal(t, "conversation/1", e["key"])
	assert.Equal(t, "running", e["state"])
	assert.NotEmpty(t, e["node"])
	stdout, _ = b.run(0, "ls")
	assert.Regexp(t, `(?m)^conversation/1 +running +2 +1 +\S+ +\S+/\S+ +-$`, stdout)
	assert.Regexp(t, `(?m)^conversation/2 +stopped +1 +0 +\S+ +- +no model$`, stdout)
	stdout, _ = b.run(0, "show conversation/2")
	assert.Regexp(t, `(?m)^\d+ +next +11 +\S+ +-$`, stdout, "what waits")
	assert.Regexp(t, `(?m)^\d+ +conversation/2 +bad +11 +1 +\S+ +no model$`, stdout, "what is dead")

	for what, reason := range map[string]string{"none": "", "lines": "a\nb", "too long": strings.Repeat("x", 381), "not UTF-8": "bad\xff\xfe"} {
		_, stderr, code := clitest.Run(t, b.env, "turns", "interrupt", "conversation/1", "--reason", reason)
		assert.Equal(t, 64, code, "%s: %s", what, stderr)
		assert.Contains(t, stderr, "--reason: say why", what)
	}
	stdout, _ = b.run(0, "show conversation/1 -o json")
	assert.NotContains(t, stdout, "interrupted", "control: nobody has interrupted it")
	b.run(0, "interrupt conversation/1 --reason enough")
	var interrupted *turns.InterruptedError
	require.ErrorAs(t, await.Receive(t, await.Soon, causes), &interrupted)
	assert.Equal(t, "enough", interrupted.Reason)
	assert.Equal(t, "b", await.Receive(t, await.Soon, done))

	close(broken)
	stdout, _ = b.run(0, "retry conversation/2")
	assert.Equal(t, "put back dead letters of conversation/2: 1\n", stdout)
	assert.Equal(t, "bad", await.Receive(t, await.Soon, done), "in its old place")
	assert.Equal(t, "next", await.Receive(t, await.Soon, done))
	b.run(3, "retry conversation/2")
	await.Until(t, await.Soon, func() bool {
		stdout, _, code := clitest.Run(t, b.env, "turns", "show", "conversation/2")
		return code == 3 && strings.Contains(stdout, "idle")
	})
	_, stderr := b.run(3, "interrupt conversation/1")
	assert.Contains(t, stderr, "no turn is running")
}

func TestDeadLettersAreSkippedByNumberAndEntitiesPurged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(1, "a", "b", "c")
	b.serve(func(context.Context, *turns.Turn) error { return errors.New("no model") })
	var numbers []int64
	dead := func(count int) {
		t.Helper()
		await.Until(t, await.Soon, func() bool {
			letters, err := b.DeadLetters(t.Context(), conversations.ID(1), 0, 10)
			require.NoError(t, err)
			numbers = numbers[:0]
			for _, d := range letters {
				numbers = append(numbers, d.Message.Number)
			}
			return len(letters) == count
		})
	}
	dead(1)
	b.run(3, fmt.Sprintf("skip conversation/1 %d", numbers[0]+1000))
	b.run(3, fmt.Sprintf("skip conversation/7 %d", numbers[0])) // of another entity: it is left alone
	dead(1)
	b.run(0, fmt.Sprintf("skip conversation/1 %d -o json", numbers[0]))
	dead(1) // the next one
	_, stderr := b.run(64, "purge conversation/1")
	assert.Contains(t, stderr, "give --yes")
	stdout, _ := b.run(0, "purge conversation/1 --yes -o json")
	assert.Contains(t, stdout, `"count": 2`)
	stdout, stderr = b.run(3, "purge conversation/1 --yes")
	assert.Empty(t, stdout)
	assert.Contains(t, stderr, "conversation/1 has no message in the mailbox chat")
	b.run(3, "show conversation/1")
}

func TestAKeyNamesItsMailbox(t *testing.T) {
	t.Parallel()
	env := clitest.At(pgtest.DSN(t))
	_, stderr, code := clitest.Run(t, env, "turns", "ls")
	assert.Equal(t, 3, code, stderr)
	assert.Contains(t, stderr, "Mailbox.Migrate makes one, or turns.Schema in a migration and then Mailbox.Serve")
	assert.NotContains(t, stderr, "SQLSTATE")

	b := newBench(t)
	dsn, err := url.Parse(strings.TrimPrefix(b.env[0], "DATABASE_URL="))
	require.NoError(t, err)
	_, stderr, code = clitest.Run(t, clitest.At(dsn.String()+"&options=-c%20role%3Dpg_monitor"), "turns", "ls")
	assert.Equal(t, 77, code, stderr)
	assert.Contains(t, stderr, "permission denied")
	assert.Contains(t, stderr, "turns.Grants has the SQL")
	dsn.Path = "/nowhere"
	_, stderr, code = clitest.Run(t, clitest.At(dsn.String()), "turns", "ls")
	assert.Equal(t, 77, code, stderr)
	assert.NotContains(t, stderr, "turns.Grants", "control: another refusal has its own remedy")
	other, err := turns.Open(t.Context(), turns.Config{Pool: b.pool, Name: "other", Namespace: conversations})
	require.NoError(t, err)
	require.NoError(t, other.Migrate(t.Context()))
	devices, err := turns.Open(t.Context(), turns.Config{Pool: b.pool, Name: "devices", Namespace: namespace.Must(15, "device")})
	require.NoError(t, err)
	require.NoError(t, devices.Migrate(t.Context()))
	b.send(1, "a")
	_, stderr = b.run(64, "show conversation/1")
	assert.Contains(t, stderr, "choose one with --mailbox: chat (conversation=14), other (conversation=14)\n")
	stdout, _ := b.run(0, "ls")
	assert.Regexp(t, `(?m)^MAILBOX +KEY +STATE .*\nchat +conversation/1 +ready `, stdout)
	stdout, _ = b.run(0, "ls --dead")
	assert.Regexp(t, `(?m)^MAILBOX +NUMBER +KEY `, stdout)
	stdout, _ = b.run(0, "ls chat")
	assert.Regexp(t, `(?m)^KEY +STATE .*\nconversation/1 +ready `, stdout)
	b.run(0, "show conversation/1 --mailbox chat")
	b.run(3, "show conversation/1 --mailbox other")
	_, stderr = b.run(3, "show conversation/1 --mailbox none")
	assert.Contains(t, stderr, `there is no mailbox "none"`)
	_, stderr = b.run(3, "show agent/1")
	assert.Contains(t, stderr, `has the namespace "agent"`)
	b.run(64, "show device/1 --mailbox chat")
	_, stderr = b.run(64, "show 42")
	assert.Contains(t, stderr, "give namespace/entity")
	b.run(64, "skip conversation/1 x --mailbox chat")
	b.run(64, "ls --limit 0")
	b.run(64, "ls --dead --waiting")
	b.run(3, "ls none")
	_, stderr, code = clitest.Run(t, clitest.At(clitest.Nowhere), "turns", "ls")
	assert.Equal(t, 69, code, stderr)
	stdout, _, _ = clitest.Run(t, b.env, "__complete", "turns", "show", "")
	assert.Contains(t, stdout, "conversation/1\tready")
	stdout, _, _ = clitest.Run(t, b.env, "__complete", "turns", "ls", "")
	assert.Contains(t, stdout, "chat\thas the keys of conversation")
}

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }
