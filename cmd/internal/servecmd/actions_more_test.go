package servecmd_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/lease"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

func TestANodeIsDrainedAndAShardPinnedFromThePage(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, identity := range []string{"web-1", "web-2"} {
		b, err := shardspg.New(shardspg.Config{DSN: c.dsn, Namespace: namespace.Must(7, "tenant"), CreateTable: true})
		require.NoError(t, err)
		node, err := shards.New(shards.Config{
			Name: "tenants", Backend: b, Identity: identity, Shards: []string{"a", "b"}, LeaseDuration: 10 * time.Second, LookInterval: 20 * time.Millisecond, MinStay: -1,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
		}()
		t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	}
	observer, err := shardspg.New(shardspg.Config{DSN: c.dsn, Namespace: namespace.Must(7, "tenant")})
	require.NoError(t, err)
	owner := func(want string, names ...string) {
		t.Helper()
		var seen shards.Group
		await.Until(t, await.Soon, func() bool {
			var err error
			seen, err = shards.Observe(t.Context(), observer)
			n := 0
			for _, s := range seen.Shards {
				for _, name := range names {
					if s.Name == name && s.Owner == want {
						n++
					}
				}
			}
			return err == nil && n == len(names) && len(seen.Members) == 2
		}, func() string { return fmt.Sprintf("%+v", seen) })
	}
	a := c.until(endToken, `{"action":"drain","group":"tenant=7","node":"web-1"}`, "done")
	assert.Contains(t, a.Text, "web-1 of tenant ")
	owner("web-2", "a", "b")
	shown := c.send(endToken, "prepare", `{"action":"drain","group":"tenant=7","node":"web-2"}`)
	assert.Equal(t, "It owns 2 shards. Others that take shards: none.", shown.Effect[0])
	assert.Equal(t, "done", c.until(endToken, `{"action":"undrain","group":"tenant=7","node":"web-1"}`, "done").Outcome)
	assert.Contains(t, c.until(endToken, `{"action":"pin","group":"tenant=7","shard":"a","node":"web-1"}`, "done").Text, "a of tenant is pinned to web-1")
	owner("web-1", "a")
	assert.Equal(t, "a of tenant is not pinned any more", c.until(endToken, `{"action":"unpin","group":"tenant=7","shard":"a"}`, "done").Text)
	again := c.send(endToken, "prepare", `{"action":"unpin","group":"tenant=7","shard":"a"}`)
	assert.Contains(t, again.Detail, "is not pinned")
}

func TestALeaseOfALockServerIsEndedFromThePage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte(lockToken+" right=admin name=monitor\n"), 0o600))
	_, server := clitest.Serve(t, nil, "--store", "sqlite:"+filepath.Join(dir, "l.db"), "--auth-token-file", tokens)
	c := newConsole(t, "--lock-server", "http://"+server)
	env := []string{"PGLATCH_LOCK_TOKEN=" + lockToken, "PGLATCH_LOCK_SERVER=http://" + server}
	acquire := func() {
		t.Helper()
		_, stderr, code := clitest.Run(t, env, "lease", "acquire", "nightly", "--owner", "web-3", "--ttl", "1h")
		require.Zero(t, code, stderr)
	}
	acquire()
	shown := c.send(endToken, "prepare", `{"action":"force-release","lease":"nightly"}`)
	require.Equal(t, http.StatusOK, shown.status, "%+v", shown)
	assert.Equal(t, "End the lease of web-3 on nightly", shown.Title)
	assert.Equal(t, "It is of the lock server http://"+server+", and of no other.", shown.Effect[0])
	_, stderr, code := clitest.Run(t, env, "lease", "force-release", "nightly", "--reason", "meanwhile")
	require.Zero(t, code, stderr)
	acquire()
	a := c.confirm(endToken, shown.Confirm, "its host is gone")
	assert.True(t, a.Changed, "another lease has its place: %+v", a)
	a = c.confirm(endToken, a.Confirm, "its host is gone")
	assert.Equal(t, "done", a.Outcome, "%+v", a)
	assert.Contains(t, a.Text, "ended the lease of web-3 on nightly: fencing token ")
	assert.Equal(t, "lock server http://"+server+", lease nightly", c.last().Target)
	free := c.send(endToken, "prepare", `{"action":"force-release","lease":"nightly"}`)
	assert.Equal(t, http.StatusUnprocessableEntity, free.status)
}

// hostile is a name that a path, a shell, HTML and SQL read differently.
const hostile = `nightly//"x"%2F|<b>'; DROP TABLE locks; --`

func TestALeaseInTheDatabasesStoreIsEndedFromThePage(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	request := fmt.Sprintf(`{"action":"force-release","lease":%q}`, hostile)
	none := c.send(endToken, "prepare", request)
	assert.Equal(t, http.StatusServiceUnavailable, none.status, "there is no store yet: %+v", none)
	assert.Contains(t, none.Detail, "has no leases")
	c.program.Saying(&c.program.Stderr, "the schema pglatch_lease is not there")
	store, err := leasepg.New(leasepg.Config{DSN: c.dsn})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	held, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: hostile, Holder: "<b>web-3", TTL: time.Hour})
	require.NoError(t, err)
	other, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "nightly", Holder: "web-3", TTL: time.Hour})
	require.NoError(t, err)
	refused := c.send(askToken, "prepare", request)
	assert.Equal(t, http.StatusForbidden, refused.status, "%+v", refused)
	assert.Equal(t, []string{"refused", "lease " + hostile}, []string{c.last().Outcome, c.last().Target})
	shown := c.send(endToken, "prepare", request)
	require.Equal(t, http.StatusOK, shown.status, "%+v", shown)
	assert.Equal(t, "End the lease of <b>web-3 on "+hostile, shown.Title)
	assert.Equal(t, "It is in this database's store.", shown.Effect[0])
	record, err := store.Get(t.Context(), hostile)
	require.NoError(t, err)
	require.Equal(t, lease.Held, record.State, "nothing is done before it is confirmed")
	a := c.confirm(endToken, shown.Confirm, "its host is gone")
	assert.Equal(t, "done", a.Outcome, "%+v", a)
	assert.Equal(t, entry{Who: "eva", Role: "end", Action: "force-release", Target: "lease " + hostile, Why: "its host is gone", Outcome: "done"}, c.essential())
	_, err = store.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: time.Hour})
	require.ErrorIs(t, err, lease.ErrStale, "the holder learns it with its next renewal")
	_, err = store.Renew(t.Context(), lease.RenewRequest{Claim: other.Claim, TTL: time.Hour})
	require.NoError(t, err, "control: the other lease goes on")
	_, err = store.Acquire(t.Context(), lease.AcquireRequest{Name: "דוח 7", Holder: "שלום", TTL: time.Hour})
	require.NoError(t, err)
	shown = c.send(endToken, "prepare", `{"action":"force-release","lease":"דוח 7"}`)
	assert.Equal(t, "End the lease of \u2068שלום\u2069 on \u2068דוח 7\u2069", shown.Title, "names do not turn the words around them")
	assert.Equal(t, "done", c.confirm(endToken, shown.Confirm, "its host is gone").Outcome)
	assert.Equal(t, "End the lease of שלום on דוח 7", c.last().Shown, "control: a terminal may show an isolate as a character")
	c.program.Saying(&c.program.Stderr, "lease_force_released outcome=released")
	c.program.Saying(&c.program.Stderr, "eva: its host is gone")
}

func TestATurnIsInterruptedAndADeadLetterRetriedFromThePage(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	pool := dbtest.Pool(t, c.dsn)
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: c.dsn})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	chats := namespace.Must(8, "chat")
	box, err := turns.Open(t.Context(), turns.Config{Pool: pool, Name: "chat", Namespace: chats, Locker: locker, MaxAttempts: 1, Finish: -1})
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	entered, causes := make(chan struct{}, 9), make(chan error, 9)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = box.Serve(ctx, func(ctx context.Context, _ *turns.Turn) error {
			entered <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		})
	}()
	t.Cleanup(func() { stop(); <-ended })
	entity, err := chats.Text("a")
	require.NoError(t, err)
	send := func() {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			_, err := box.Send(t.Context(), tx, entity, turns.Message{ID: "1", Body: []byte("x")})
			return err
		}))
	}
	none := c.send(endToken, "prepare", `{"action":"interrupt","mailbox":"chat","entity":"chat/b"}`)
	assert.Equal(t, http.StatusUnprocessableEntity, none.status, "%+v", none)
	assert.Contains(t, none.Detail, "no turn is running: chat/b")
	none = c.send(endToken, "prepare", `{"action":"interrupt","mailbox":"chat","entity":"chat/"}`)
	assert.Equal(t, http.StatusUnprocessableEntity, none.status, "the database is there: %+v", none)
	assert.Contains(t, none.Detail, "the entity is empty")
	// fails confirms a request, while a function of the schema says that what was shown is gone.
	fails := func(request, function, arguments string) {
		t.Helper()
		shown := c.send(endToken, "prepare", request)
		require.Equal(t, http.StatusOK, shown.status, "%+v", shown)
		_, err := pool.Exec(t.Context(), fmt.Sprintf(`ALTER FUNCTION pglatch_turns.%[1]s(%[2]s) RENAME TO its_%[1]s;
			CREATE FUNCTION pglatch_turns.%[1]s(%[2]s) RETURNS bool LANGUAGE sql AS 'SELECT false'`, function, arguments))
		require.NoError(t, err)
		a := c.confirm(endToken, shown.Confirm, "the host goes down")
		assert.Equal(t, []string{"failed", "failed"}, []string{a.Outcome, c.last().Outcome}, "%+v", a)
		assert.Regexp(t, "^turns: no ", a.Text, "it does not say that it was done")
		assert.Equal(t, a.Text, c.last().Detail)
		_, err = pool.Exec(t.Context(), fmt.Sprintf(`DROP FUNCTION pglatch_turns.%[1]s(%[2]s); ALTER FUNCTION pglatch_turns.its_%[1]s(%[2]s) RENAME TO %[1]s`, function, arguments))
		require.NoError(t, err)
	}
	send()
	await.Receive(t, await.Soon, entered)
	fails(`{"action":"interrupt","mailbox":"chat","entity":"a"}`, "interrupt", "text, text, text")
	assert.Equal(t, "interrupted the turn of chat/a", c.until(endToken, `{"action":"interrupt","mailbox":"chat","entity":"a"}`, "done").Text, "the words of the command")
	cause := await.Receive(t, await.Soon, causes)
	require.ErrorIs(t, cause, turns.ErrInterrupted)
	assert.ErrorContains(t, cause, "eva: the host goes down")
	var letters []turns.DeadLetter
	await.Until(t, await.Soon, func() bool {
		letters, err = box.DeadLetters(t.Context(), namespace.Key{}, 0, 10)
		return err == nil && len(letters) == 1
	}, "there is no dead letter")
	request := fmt.Sprintf(`{"action":"retry","mailbox":"chat","number":%d}`, letters[0].Message.Number)
	shown := c.send(endToken, "prepare", request)
	assert.Contains(t, strings.Join(shown.Effect, "\n"), "It was tried 1 time,")
	fails(request, "retry_dead", "text, bigint")
	a := c.confirm(endToken, shown.Confirm, "the cause is gone")
	assert.Equal(t, []string{"done", "put back dead letters of chat/a: 1"}, []string{a.Outcome, a.Text})
	await.Receive(t, await.Soon, entered, "the message has its turn again")
	missing := c.send(endToken, "prepare", request)
	assert.Contains(t, missing.Detail, "number")
}

// at is the page of one of several databases.
func (c *console) at(label, dsn string) *console {
	one := *c
	one.url, one.dsn = c.url+label+"/", dsn
	return &one
}

func TestAnActionIsOnTheDatabaseOfItsPage(t *testing.T) {
	t.Parallel()
	dsn, other := pgtest.DSN(t), pgtest.DSN(t)
	c := newConsole(t, "--dsn", "prod="+dsn, "--dsn", "staging="+other)
	prod, staging := c.at("prod", dsn), c.at("staging", other)
	conn, pid := prod.session("web-3", 1)
	neighbour, _ := staging.session("web-3", 1)
	request := fmt.Sprintf(`{"action":"terminate","session":%d}`, pid)

	a := staging.send(endToken, "prepare", request)
	assert.Equal(t, http.StatusUnprocessableEntity, a.status, "the session is of the other database: %+v", a)
	a = prod.send(endToken, "prepare", request)
	require.Equal(t, http.StatusOK, a.status, "%+v", a)
	shown := clitest.Connect(t, dsn, "whoever").Config()
	place := shown.Database + " on " + net.JoinHostPort(shown.Host, fmt.Sprint(shown.Port))
	assert.Equal(t, "It is on the database prod: "+place+".", a.Effect[0])
	assert.Equal(t, http.StatusConflict, staging.confirm(endToken, a.Confirm, "it hangs").status, "it was shown on the other page")
	assert.Equal(t, []string{"refused", "it hangs"}, []string{c.last().Outcome, c.last().Why})
	assert.Equal(t, http.StatusForbidden, prod.send(askToken, "prepare", request).status)
	assert.Equal(t, http.StatusUnauthorized, prod.send("", "prepare", request).status)
	assert.Equal(t, http.StatusMethodNotAllowed, c.send(endToken, "prepare", request).status, "the list has no actions")
	require.True(t, lives(t, conn))

	a = prod.confirm(endToken, a.Confirm, "it hangs")
	assert.Equal(t, "done", a.Outcome, "control: %+v", a)
	assert.False(t, lives(t, conn))
	assert.True(t, lives(t, neighbour))
	assert.Equal(t, entry{Who: "eva", Role: "end", Action: "terminate", Target: fmt.Sprintf("database prod (%s), session %d", place, pid), Why: "it hangs", Outcome: "done"}, c.essential())
	assert.Len(t, staging.state(lookToken).Keys, 1)
}

// Viewers share what the live page renders. It must have nothing of a person, and nobody gets it without a token.
func TestTheSharedViewHasNothingOfAPerson(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	names := map[string]string{lookToken: "person-who-looks", endToken: "person-who-ends"}
	c.change(lookToken + " role=look name=person-who-looks\n" + endToken + " role=end name=person-who-ends\n")
	c.session("web-3", 1)
	watch := func(token string) (status int, event string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+"live?view=", http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() }) // it watches until the test ends
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return response.StatusCode, data
			}
		}
		return response.StatusCode, ""
	}
	for token, name := range names {
		status, event := watch(token)
		require.Equal(t, http.StatusOK, status)
		assert.Contains(t, event, "order/1")
		for other, who := range names {
			assert.NotContains(t, event, who)
			assert.NotContains(t, event, other)
		}
		assert.NotContains(t, event, "confirm")
		assert.Equal(t, name, c.state(token).Person.Name, "control: each person has a state of their own")
	}
	status, event := watch("guessed-0123456789abcdef")
	assert.Equal(t, http.StatusUnauthorized, status, "a rendering that is there is not for a stranger")
	assert.Empty(t, event)
}
