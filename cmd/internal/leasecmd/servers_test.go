package leasecmd_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

// A pair is two lock servers on one database. What is sent to the first one passes here:
// with the answer that is to be lost, the first server is killed.
type pair struct {
	first *clitest.Program
	urls  []string
	lose  atomic.Pointer[string] // the end of the path whose answer is lost; nil = none
	then  func()                 // is called between the kill and the loss of the answer; nil = nothing
}

func newPair(t *testing.T) *pair {
	t.Helper()
	dsn := pgtest.DSN(t)
	var p pair
	first, address := clitest.Serve(t, nil, "--store", dsn)
	_, second := clitest.Serve(t, nil, "--store", dsn)
	p.first = first
	gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+address+r.URL.RequestURI(), r.Body)
		if err == nil {
			request.Header = r.Header.Clone()
			var response *http.Response
			if response, err = http.DefaultTransport.RoundTrip(request); err == nil {
				defer func() { _ = response.Body.Close() }()
				if end := p.lose.Load(); end == nil || !strings.HasSuffix(r.URL.Path, *end) {
					maps.Copy(w.Header(), response.Header)
					w.WriteHeader(response.StatusCode)
					_, _ = io.Copy(w, response.Body)
					return
				}
				first.Signal(syscall.SIGKILL)
				first.Wait()
				if p.then != nil {
					p.then()
				}
			}
		}
		panic(http.ErrAbortHandler) // the connection breaks
	}))
	t.Cleanup(gate.Close)
	p.urls = []string{gate.URL, "http://" + second}
	return &p
}

func (p *pair) loseAnswersTo(verb string) { p.lose.Store(&verb) }

func TestAnAcquireWhoseServerIsKilledGetsTheSameLeaseAtTheNextServer(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.loseAnswersTo("/acquire")
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	assert.Equal(t, 137, p.first.Wait())
	assert.Equal(t, uint64(1), l.Token, "one lease was granted")
	require.NoError(t, cl.Release(t.Context(), l.Claim))
}

// The control: as two requests, because they have two keys, and not the client's one.
func TestAnAcquireThatIsSentAgainWithAnotherKeyIsHeldByTheFirst(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.loseAnswersTo("/acquire")
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls, Resends: -1})
	r := servetest.Ask("job", "a")
	r.IdempotencyKey = "one"
	_, err := cl.Acquire(t.Context(), r)
	require.ErrorContains(t, err, "outcome unknown")
	r.IdempotencyKey = "two"
	_, err = cl.Acquire(t.Context(), r)
	for err != nil && strings.Contains(err.Error(), "outcome unknown") { // the second server passed it on to the first one
		_, err = cl.Acquire(t.Context(), r)
	}
	require.ErrorIs(t, err, lease.ErrHeld)
	r.IdempotencyKey = "one"
	_, err = cl.Acquire(t.Context(), r)
	require.NoError(t, err)
}

func TestARenewalWhoseServerIsKilledIsCarriedOutAtTheNextServer(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	l, err := cl.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
	require.NoError(t, err)
	p.loseAnswersTo("/renew")
	renewed, err := cl.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, 137, p.first.Wait())
	assert.Equal(t, l.Claim, renewed.Claim)
	assert.Greater(t, renewed.Remaining, 50*time.Minute)
}

func TestAReleaseWhoseServerIsKilledSucceedsAtTheNextServer(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	p.loseAnswersTo("/release")
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	assert.Equal(t, 137, p.first.Wait())
	next, err := cl.Acquire(t.Context(), servetest.Ask("job", "b"))
	require.NoError(t, err)
	assert.Greater(t, next.Token, l.Token)
}

func TestAReleaseWhoseServerIsKilledSucceedsAtTheNextServerAfterAnotherGotTheLock(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	other := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls[1:]})
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	got := make(chan lease.Lease, 1)
	p.then = func() {
		next, err := other.AcquireWithRetry(t.Context(), "job", "b", leasehttp.AcquireOptions{TTL: time.Minute})
		if assert.NoError(t, err) {
			got <- next.Last()
		}
	}
	p.loseAnswersTo("/release")
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	assert.Equal(t, 137, p.first.Wait())
	next := <-got
	require.ErrorIs(t, cl.Release(t.Context(), l.Claim), lease.ErrStale, "another request, with another key")
	require.NoError(t, other.Release(t.Context(), next.Claim), "the resend left the lease alone")
}

func TestAHandOverWhoseServerIsKilledIsMadeOnce(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	other := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls[1:]})
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	got := make(chan lease.Lease, 1)
	go func() {
		next, err := other.AcquireWait(t.Context(), servetest.Ask("job", "b"), servetest.Bound)
		assert.NoError(t, err)
		got <- next
	}()
	refused := func() bool { // it waits until the lock is handed over
		return strings.Contains(body(t, p.urls[0]+"/metrics"), `lock_op_duration_seconds_count{op="acquire"} 2`+"\n")
	}
	await.Until(t, await.Soon, refused, "nobody waits at the first")
	p.then = func() {
		record, err := other.Get(t.Context(), "job")
		assert.NoError(t, err)
		assert.Equal(t, "b", record.Holder, "the first server handed the lock over")
	}
	p.loseAnswersTo("/release")
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	assert.Equal(t, 137, p.first.Wait())
	next := <-got
	assert.Equal(t, l.Token+1, next.Token, "one lease was granted")
	require.NoError(t, other.Release(t.Context(), next.Claim))
}

func TestAWaiterWhoseServerIsKilledWaitsAtTheNextServer(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	holder := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls[1:]})
	held, err := holder.Acquire(t.Context(), servetest.Ask("job", "holder"))
	require.NoError(t, err)
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	got := make(chan lease.Lease, 1)
	go func() {
		l, err := cl.AcquireWait(t.Context(), servetest.Ask("job", "waiter"), servetest.Bound)
		assert.NoError(t, err)
		got <- l
	}()
	waits := func(url string) bool { return strings.Contains(body(t, url+"/metrics"), "lock_waiters 1\n") }
	await.Until(t, await.Soon, func() bool { return waits(p.urls[0]) }, "nobody waits at the first")
	p.first.Signal(syscall.SIGKILL)
	await.Until(t, await.Soon, func() bool { return waits(p.urls[1]) }, "nobody waits at the second")
	require.NoError(t, holder.Release(t.Context(), held.Claim))
	assert.Greater(t, (<-got).Token, held.Token)
}

func body(t *testing.T, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(data)
}

func TestLeaseRunGoesOnWhenItsServerIsKilled(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for _, several := range []bool{true, false} {
		t.Run(map[bool]string{true: "with another server", false: "the control without one"}[several], func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			first, one := clitest.Serve(t, nil, "--store", dsn)
			_, two := clitest.Serve(t, nil, "--store", dsn)
			args := []string{"lease", "run", "job", "--ttl", "10s", "--kill-after", "1s", "--server", "http://" + one}
			if several {
				args[len(args)-1] += ",http://" + two
			}
			work := clitest.Start(t, nil, append(args, "-c", "echo works; sleep 15")...)
			work.Saying(&work.Stdout, "works")
			first.Signal(syscall.SIGKILL)
			assert.Equal(t, map[bool]int{true: 0, false: 76}[several], work.Wait(), work.Stderr.String())
		})
	}
}

// A killing client kills the first server when so many shares were granted.
type killing struct {
	sharetest.Remote
	kill func()
	left *atomic.Int64
}

func (k killing) Acquire(ctx context.Context, r shared.Request, wait time.Duration) (shared.Share, error) {
	s, err := k.Remote.Acquire(ctx, r, wait)
	if err == nil && k.left.Add(-1) == 0 {
		k.kill()
	}
	return s, err
}

func TestSlotsAreSharedWhileAServerIsKilled(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	p := newPair(t)
	client := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	var left atomic.Int64
	left.Store(8)
	crowd := sharetest.Crowd{Clients: 6, Turns: 3, Slots: 2, TTL: time.Second, Writers: true}
	shares := crowd.Run(t.Context(), t, func(int) sharetest.Client {
		return killing{sharetest.Remote{Client: client}, func() { p.first.Signal(syscall.SIGKILL) }, &left}
	})
	assert.Greater(t, shares, 8, "the other server goes on")
}

func TestAnOutageOfPostgreSQLIsNotTakenForALockThatIsHeld(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	server, err := url.Parse(dsn)
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), server.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	through, err := proxy.URL(dsn)
	require.NoError(t, err)
	_, address := clitest.Serve(t, nil, "--store", through)
	ttl := "3s" // what was sent into the silence can be carried out after it
	acquire := func(owner, wait string) *clitest.Program {
		return clitest.Start(t, nil, "lease", "acquire", "cron", "--ttl", ttl, "--owner", owner, "-w", wait, "--server", "http://"+address)
	}
	control := clitest.Start(t, nil, "lease", "run", "other", "--server", "http://"+address, "--", "true")
	require.Zero(t, control.Wait(), control.Stderr.String())
	proxy.Set(faultproxy.Hold)
	var all []*clitest.Program
	for _, owner := range []string{"first", "second", "third"} {
		all = append(all, acquire(owner, "1s"), acquire(owner, "0s"))
	}
	for _, p := range all {
		assert.Equal(t, 69, p.Wait(), p.Stderr.String())
		assert.NotContains(t, p.Stderr.String(), "held by")
	}
	proxy.Set(faultproxy.Pass)
	ttl = "1m"
	after := acquire("after", "25s")
	require.Zero(t, after.Wait(), "nobody had it: %s", after.Stderr.String())
	held := acquire("control", "0s")
	require.Equal(t, 75, held.Wait(), "now somebody has it: %s", held.Stderr.String())
}

// A full store can do nothing now.
type full struct{ lease.Store }

func (full) Acquire(context.Context, lease.AcquireRequest) (lease.Lease, error) {
	return lease.Lease{}, &lease.BusyError{Retry: 10 * time.Millisecond, Cause: errors.New("disk full")}
}

func TestAStoreThatCanDoNothingIsNotTakenForALockThatIsHeld(t *testing.T) {
	t.Parallel()
	_, env := clitest.LockServer(t, full{leasetest.NewStore()})
	for _, args := range []string{"lease acquire job", "lease acquire job -w 100ms", "lease run job -n -- true", "lease run job -w 100ms -- true"} {
		_, stderr, code := clitest.Run(t, env, strings.Fields(args)...)
		assert.Equal(t, 69, code, "%s: %s", args, stderr)
	}
}

func TestTheCommandIsGoneBeforeALeaseThatCannotBeKeptExpires(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for _, times := range []string{"--ttl 20s --kill-after 2s", "--ttl 20s", "--ttl 20s --kill-after 10s"} {
		t.Run(times, func(t *testing.T) {
			t.Parallel()
			store := leasetest.NewStore()
			server, env := clitest.LockServer(t, store)
			args := append(strings.Fields("lease run job "+times), "-c", "trap '' TERM; sleep 300 & echo shell=$$; echo child=$!; wait; wait; wait") // KILL ends it only
			p := clitest.Start(t, env, args...)
			shell, child := p.Number("shell"), p.Number("child")
			server.CloseClientConnections()
			server.Close()
			clitest.RequireDead(t, shell, child)
			record, err := store.Get(t.Context(), "job")
			require.NoError(t, err)
			assert.Equal(t, lease.Held, record.State, "for another %v", record.Remaining)
			assert.Equal(t, 76, p.Wait())
			assert.Contains(t, p.Stderr.String(), "no renewal succeeded in time")
		})
	}
}

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }

func TestScript(t *testing.T) { clitest.Scripts(t) }
