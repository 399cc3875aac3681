package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

var emptyConnConfig = &pgx.ConnConfig{}

func startQuietServer(t *testing.T) *pgserver.Server {
	t.Helper()
	return pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{
		"autovacuum": "off", "log_checkpoints": "off", "log_lock_waits": "on", "deadlock_timeout": "2s", "checkpoint_timeout": "1h",
	}})
}

// throughProxy changes a backend's connections: they go through the proxy until
// direct is set.
func throughProxy(t *testing.T, dsn string) (proxy *faultproxy.Proxy, direct *atomic.Bool, change func(*postgres.Config)) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	require.NoError(t, err)
	proxy, err = faultproxy.New(t.Context(), u.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	via, err := proxy.URL(dsn)
	require.NoError(t, err)
	direct = new(atomic.Bool)
	return proxy, direct, func(c *postgres.Config) {
		c.DSN = via
		c.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
			if direct.Load() {
				cc.Host, cc.Port = u.Hostname(), uint16(port)
			}
			return nil
		}
	}
}

func TestACandidateEndsItsOwnSessionThatTheServerStillHas(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	proxy, direct, change := throughProxy(t, dsn)
	a, other, judge := newBackend(t, dsn, change), newBackend(t, dsn, nil), newJudge(t, dsn)
	lead(t, a, "a")
	pid := judge.holder()
	proxy.Set(faultproxy.Hold)
	require.NoError(t, a.Close()) // the server does not hear of it
	direct.Store(true)

	// The control: to another candidate, of the same name even, the session is a leader.
	refused(t, other, "other")
	refused(t, other, "a")
	assert.Equal(t, pid, judge.holder())

	lead(t, a, "a")
	assert.NotEqual(t, pid, judge.holder())
	assert.Equal(t, uint64(2), a.Term().N)
	assert.False(t, a.CleanStart())
}

// A pooler in session mode gives the server session of a client that has gone to
// another one.
func TestACandidateLeavesASessionAloneThatIsAnothersNow(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, other := newBackend(t, dsn, nil), newBackend(t, dsn, nil)
	lead(t, other, "other")
	a.PretendStale(other)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	won, err := a.TryAcquire(ctx, "a", ttl)
	require.NoError(t, err)
	assert.False(t, won)
	require.NoError(t, other.Renew(t.Context(), "other", ttl))
}

func TestASilentServerIsALossBeforeTheLeaseCanEnd(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	proxy, _, change := throughProxy(t, dsn)
	a, judge := newBackend(t, dsn, change), newJudge(t, dsn)
	lead(t, a, "a")
	proxy.Set(faultproxy.Hold)

	// A renewal that gets no answer in time is a doubt, and costs nothing if the answer comes.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := a.Renew(ctx, "a", ttl)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, leader.ErrConnection)
	require.NotErrorIs(t, err, leader.ErrLost)
	proxy.Set(faultproxy.Pass)
	require.NoError(t, a.Renew(t.Context(), "a", ttl))
	release(t, a, "a")

	const short = 2 * time.Second
	judge.Until(func() bool { // a busy machine may need more than one attempt
		won, err := a.TryAcquire(t.Context(), "a", short)
		return won && err == nil
	})
	proxy.Set(faultproxy.Hold)
	judge.Until(func() bool { return judge.holder() == 0 })
	over, done := context.WithCancel(t.Context())
	done()
	require.ErrorIs(t, a.Renew(over, "a", short), leader.ErrLost, "trusted a lease that the server ended")
	waitLost(t, a)
	release(t, a, "a")
}

func TestReleaseAndCloseEndSoonInADeadNetwork(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.Context, *postgres.Backend) error{
		"release": func(ctx context.Context, b *postgres.Backend) error { return b.Release(ctx, "a") },
		"close":   func(context.Context, *postgres.Backend) error { return nil },
		"renew and release": func(ctx context.Context, b *postgres.Backend) error {
			_ = b.Renew(ctx, "a", ttl)
			return b.Release(ctx, "a")
		},
		"renew and close": func(ctx context.Context, b *postgres.Backend) error {
			_ = b.Renew(ctx, "a", ttl)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			proxy, _, change := throughProxy(t, dsn)
			b := newBackend(t, dsn, change)
			lead(t, b, "a")
			proxy.Set(faultproxy.Hold)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			done := make(chan struct{})
			go func() {
				_ = end(ctx, b)
				_ = b.Close()
				close(done)
			}()
			await.Receive(t, patience, done, "it waits for the network")
		})
	}
}

// awaitPending makes attempts until one has come so far that it only waits. On a busy machine it needs some, and longer ones.
func awaitPending(t *testing.T, judge judge, b *postgres.Backend, identity string) (pending *postgres.PendingError) {
	t.Helper()
	bound := 300 * time.Millisecond // long enough to be worth a line in the log
	judge.Until(func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		bound = min(2*bound, patience/4)
		won, err := b.TryAcquire(ctx, identity, ttl)
		require.False(t, won)
		return errors.As(err, &pending)
	})
	return pending
}

func TestATakeoverWaitsForAGuardedTransactionAndNamesIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var log bytes.Buffer
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	sessions := 0 // a busy machine may need more than one
	b := newBackend(t, dsn, func(c *postgres.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(&log, nil))
		c.Connect = func(ctx context.Context, cc *pgx.ConnConfig) (*pgx.Conn, error) {
			sessions++
			return pgx.ConnectConfig(ctx, cc)
		}
	})
	term := lead(t, a, "a")
	tx := judge.Begin()
	require.NoError(t, postgres.Guard(term, tx))
	judge.Terminate(judge.holder())

	for range 2 {
		pending := awaitPending(t, judge, b, "b")
		require.ErrorIs(t, pending, driver.ErrPending)
		require.ErrorIs(t, pending, context.DeadlineExceeded)
		assert.True(t, pending.Guarded)
		assert.Equal(t, pidOf(t, tx), pending.PID)
		assert.ErrorContains(t, pending, "1:100")
		refused(t, a, "a") // the candidate keeps its place
		require.ErrorIs(t, b.Renew(t.Context(), "b", ttl), leader.ErrLost)
	}
	pid := judge.holder()
	lines := strings.Count(log.String(), "takeover waits for a guarded transaction")
	assert.Positive(t, lines)
	assert.LessOrEqual(t, lines, sessions, "once for each blocker")
	assert.Contains(t, log.String(), strconv.Itoa(int(pidOf(t, tx))))

	var wg sync.WaitGroup
	wg.Go(func() { _ = tx.Commit(context.Background()) })
	lead(t, b, "b")
	wg.Wait()
	assert.Equal(t, pid, judge.holder(), "it goes on where it was")
	assert.Equal(t, uint64(2), b.Term().N)
}

func TestATakeoverThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	tx := judge.Begin()
	require.NoError(t, postgres.Guard(lead(t, a, "a"), tx))
	judge.Terminate(judge.holder())
	attempt := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tried := make(chan error, 1)
		go func() {
			_, err := b.TryAcquire(ctx, "b", ttl)
			tried <- err
		}()
		judge.queued()
		cancel()
		return <-tried
	}
	err := attempt()
	for end := time.Now().Add(patience); errors.Is(err, leader.ErrConnection) && time.Now().Before(end); {
		judge.Until(func() bool { return judge.locks() == 1 }) // a busy server took too long to end the attempt
		err = attempt()
	}
	require.ErrorIs(t, err, driver.ErrPending)
	release(t, b, "b")
	assert.Equal(t, 1, judge.locks(), "the guard's")

	// One whose session is lost meanwhile starts anew.
	awaitPending(t, judge, b, "b")
	pid := judge.holder()
	judge.Terminate(pid)
	awaitPending(t, judge, b, "b")
	assert.NotEqual(t, pid, judge.holder())
	require.NoError(t, tx.Rollback(t.Context()))
	lead(t, b, "b")
}

// A session that ends gives its locks back in any order: here it is a session that
// has kept nothing but an incarnation.
func TestATakeoverWaitsForWhatIsLeftOfAnEarlierLeader(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	left := judge.Begin()
	election := electionkeys.Of(key.Tag())
	incarnation, _ := election.Incarnation(7).Single()
	_, err := left.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", incarnation)
	require.NoError(t, err)

	pending := awaitPending(t, judge, a, "a")
	assert.False(t, pending.Guarded)
	assert.Equal(t, pidOf(t, left), pending.PID)

	var wg sync.WaitGroup
	wg.Go(func() { _ = left.Rollback(context.Background()) })
	lead(t, a, "a")
	wg.Wait()

	// The control: another election's does not matter.
	other := judge.Begin()
	_, err = other.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", incarnation^1<<40)
	require.NoError(t, err)
	release(t, a, "a")
	lead(t, a, "a")
}

// attackTime is how long an attack lasts; PGLATCH_ATTACK=10s makes it longer.
func attackTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PGLATCH_ATTACK")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// goesOn reports whether an attack lasts: for its time, and on a busy machine longer, until it
// has hit.
func goesOn(t *testing.T, hit func() bool) func() bool {
	t.Helper()
	end := time.Now().Add(attackTime(t))
	return func() bool {
		now := time.Now()
		return now.Before(end) || now.Before(end.Add(patience)) && !hit()
	}
}

// storm sends a signal function's signal to the sessions of "a" and "b" every
// pause, until stop, which returns how many.
func (j judge) storm(signal string, pause time.Duration) (stop func() int64) {
	ctx, cancel := context.WithCancel(context.Background())
	var (
		wg   sync.WaitGroup
		sent int64
	)
	wg.Go(func() {
		for ctx.Err() == nil {
			tag, _ := j.Pool.Exec(ctx, "SELECT "+signal+"(pid) FROM pg_stat_activity WHERE application_name IN ('a', 'b') AND datname = current_database()")
			sent += tag.RowsAffected()
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(pause)):
			}
		}
	})
	return func() int64 { cancel(); wg.Wait(); return sent }
}

// Whatever statement a signal or the end of a context hits, a candidate that gave
// up holds nothing, and one that leads what a leader holds.
func TestNothingIsLeftLockedWhateverHitsATakeover(t *testing.T) {
	t.Parallel()
	for name, storm := range map[string]struct {
		signal string
		pause  time.Duration
	}{
		"cancel":    {"pg_cancel_backend", 300 * time.Microsecond},
		"terminate": {"pg_terminate_backend", 20 * time.Millisecond},
		"contexts":  {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			judge := newJudge(t, dsn)
			judge.Exec(postgres.Schema(""))
			nodes := map[string]*postgres.Backend{"a": newBackend(t, dsn, nil), "b": newBackend(t, dsn, nil)}
			var led, signals atomic.Int64
			calm := 1 // a busy machine needs more of it to lead at all
			for more := goesOn(t, func() bool { return led.Load() > 0 && (storm.signal == "" || signals.Load() > 0) }); more(); {
				stop := func() int64 { return 0 }
				if storm.signal != "" {
					stop = judge.storm(storm.signal, time.Duration(calm)*storm.pause)
				}
				var wg sync.WaitGroup
				for identity, b := range nodes {
					wg.Go(func() { led.Add(contend(judge.Pool, b, identity, time.Duration(calm)*40*time.Millisecond)) })
				}
				wg.Wait()
				signals.Add(stop())
				if led.Load() == 0 {
					calm++
				}
				judge.Until(func() bool { return judge.locks() == 0 }) // of ended sessions soon
			}
			t.Logf("led %d times, %d signals", led.Load(), signals.Load())
			assert.Positive(t, led.Load())
			assert.Equal(t, storm.signal != "", signals.Load() > 0)
		})
	}
}

// contend makes a few attempts, whose contexts end at random, and gives up.
func contend(pool postgres.Beginner, b *postgres.Backend, identity string, longest time.Duration) (led int64) {
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(longest))
		ok, err := b.TryAcquire(ctx, identity, ttl)
		switch {
		case ok:
			led++
			_ = postgres.InTx(b.Bind(ctx), pool, func(context.Context, pgx.Tx) error { return b.Renew(ctx, identity, ttl) })
		case err == nil:
			_ = b.Wait(ctx)
		}
		cancel()
		if err != nil || rand.N(2) == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), rand.N(4*time.Millisecond))
			_ = b.Release(ctx, identity)
			cancel()
		}
	}
	_ = b.Release(context.Background(), identity)
	return led
}

// These two have companion keys of one class.
var colliding = [2]namespace.Key{namespace.Pair(1, 29674), namespace.Pair(1, 32989)}

func elects(key namespace.Key) func(*postgres.Config) {
	return func(c *postgres.Config) { c.Key = key }
}

func TestTwoElectionsOfOneClassCostEachOtherNothing(t *testing.T) {
	t.Parallel()
	require.Equal(t, electionkeys.Of(colliding[0].Tag()).ClassID(), electionkeys.Of(colliding[1].Tag()).ClassID())
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, elects(colliding[0])), newJudge(t, dsn)
	b, next := newBackend(t, dsn, elects(colliding[1])), newBackend(t, dsn, elects(colliding[1]))
	judge.table()
	of := lead(t, a, "a")
	inFlight := judge.Begin()
	require.NoError(t, postgres.Guard(of, inFlight))

	other := lead(t, b, "b")
	require.NoError(t, postgres.InTx(other, judge.Pool, write))
	require.NoError(t, postgres.InTx(of, judge.Pool, write))
	release(t, b, "b")
	lead(t, next, "next")
	require.ErrorIs(t, postgres.InTx(other, judge.Pool, write), leader.ErrNotLeader, "the control: its own term has ended")
	require.NoError(t, write(t.Context(), inFlight))
	require.NoError(t, inFlight.Commit(t.Context()))
	require.NoError(t, a.Renew(t.Context(), "a", ttl))
	assert.Equal(t, 3, judge.written())
}
