package monitor_test

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// until looks until a Snapshot is as it should be.
func until(t *testing.T, m *monitor.Monitor, good func(monitor.Snapshot) bool) (s monitor.Snapshot) {
	t.Helper()
	await.Until(t, patience, func() bool {
		s = snapshot(t, m)
		return good(s)
	})
	return s
}

func toldBy(source monitor.Source) func(monitor.Snapshot) bool {
	return func(s monitor.Snapshot) bool {
		return len(s.Locks) > 0 && s.Locks[0].HeldSince != nil && s.Locks[0].HeldSince.Source == source
	}
}

// acquire holds a key until the test ends.
func acquire(t *testing.T, l *advisory.Locker, key namespace.Key) {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key)
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Release() })
}

// waitFor makes a Locker wait for a key until the test ends.
func waitFor(t *testing.T, l *advisory.Locker, ctx context.Context, key namespace.Key) { //nolint:revive // ctx says what the caller holds
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if lock, err := l.Acquire(ctx, key); err == nil {
			_ = lock.Release()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func TestTheNameOfAHashedKeyAndSinceWhenItIsHeldComeFromItsProcess(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		key, err := agents.Text("acme/eu")
		require.NoError(t, err)
		before := time.Now()
		acquire(t, locker(t, dsn, "holder"), key)
		held := time.Since(before)
		m, err := monitor.Open(monitor.Config{DSN: dsn, MinInterval: 1}) // without Namespaces
		require.NoError(t, err)
		t.Cleanup(m.Close)

		s := until(t, m, func(s monitor.Snapshot) bool { // an answer that is late, or a test that is paused, makes the difference greater
			return toldBy(monitor.SourceProcess)(s) && math.Abs(time.Since(before).Seconds()-s.Locks[0].Duration) <= (held+time.Second).Seconds()
		})

		l := s.Locks[0]
		assert.Equal(t, "agent/acme/eu", l.Key.Text)
		assert.Equal(t, "agent", *l.Namespace)
		assert.Equal(t, "acme/eu", *l.EntityID)
		assert.InDelta(t, s.Server.Now.Sub(l.HeldSince.At).Seconds(), l.Duration, 1e-3)

		unasked := open(t, monitor.Config{DSN: dsn, NoQuestions: true})
		l = until(t, unasked, toldBy(monitor.SourceFirstSeen)).Locks[0]
		assert.True(t, strings.HasPrefix(l.Key.Text, "@"), "control: PostgreSQL does not know")
	})
}

func TestTwoLockersOfAProcessAreNamedByTheirServices(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for i, service := range []string{"billing", "report"} {
		l, err := advisory.Open(t.Context(), advisory.Config{
			DSN: dsn, ApplicationName: "app", SessionTTL: time.Minute, Answer: introspect.Config{Service: service, Version: "v1"},
		})
		require.NoError(t, err)
		t.Cleanup(l.Close)
		acquire(t, l, orders.ID(int64(i)))
	}
	m := open(t, monitor.Config{DSN: dsn})
	until(t, m, func(s monitor.Snapshot) bool { return len(s.Locks) == 2 && len(s.Answers.Answers) == 1 })
	page := get(t, m.Page(), "/").Body.String()
	assert.Contains(t, page, "app (billing)")
	assert.Contains(t, page, "app (report)")
	var places []string
	for _, id := range regexp.MustCompile(`key\?id=[^"&]*`).FindAllString(page, -1) {
		place := regexp.MustCompile(`(billing v1|report), process \d+`).FindString(get(t, m.Page(), "/"+id).Body.String())
		if !slices.Contains(places, strings.Split(place, ",")[0]) {
			places = append(places, strings.Split(place, ",")[0])
		}
	}
	assert.ElementsMatch(t, []string{"billing v1", "report"}, places)
}

func TestRedactHidesWhatProcessesSay(t *testing.T) {
	t.Parallel() // the ids are long, so that no time or number is one by chance
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		key, err := agents.Text("acme/eu")
		require.NoError(t, err)
		l := locker(t, dsn, "holder").With(advisory.Options{Label: "report for acme"})
		acquire(t, l, key)
		_, err = l.AcquireSlot(t.Context(), orders.ID(1947110011), 3)
		require.NoError(t, err)
		acquire(t, l, orders.ID(1947120022))
		m := open(t, monitor.Config{DSN: dsn, Redact: func(_, id string) string { return "…" + id[:1] }})

		s := until(t, m, toldBy(monitor.SourceProcess))

		require.Len(t, s.Locks, 3)
		for _, l := range s.Locks {
			assert.Contains(t, []string{"agent/…a", "order/…1"}, strings.Split(l.Key.Text, "#")[0])
		}
		body := get(t, m.Handler(), "/api/advisory-locks").Body.String()
		page := get(t, m.Page(), "/").Body.String()
		assert.Contains(t, page, "agent/…a")
		for _, secret := range []string{"acme", "1947110011", "1947120022"} {
			assert.NotContains(t, body, secret)
			assert.NotContains(t, page, secret)
			assert.NotContains(t, get(t, m.Page(), "/graph").Body.String(), secret)
		}
		open := get(t, opened(t, dsn).Page(), "/").Body.String()
		assert.Contains(t, open, "agent/acme/eu", "control")
	})
}

func opened(t *testing.T, dsn string) *monitor.Monitor {
	t.Helper()
	m := open(t, monitor.Config{DSN: dsn})
	until(t, m, toldBy(monitor.SourceProcess))
	return m
}

// One of the two is a session by hand: Lockers of one process refuse the circle themselves.
func TestADeadlockIsAVerdict(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		m := open(t, monitor.Config{DSN: dsn, Record: 100 * time.Millisecond})
		one := locker(t, dsn, "one")
		first, err := one.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		byHand := clitest.Connect(t, dsn, "by hand")
		lock(t, byHand, agents.ID(2))
		waitFor(t, one, first.Context(), agents.ID(2))
		wait(t, dsn, byHand, agents.ID(1))
		deadlock := raised(t, m, "deadlock")
		assert.Equal(t, "critical", deadlock.Severity)
		assert.Contains(t, deadlock.Key, "agent/1")
		assert.Contains(t, deadlock.Key, "agent/2")
		assert.Len(t, deadlock.Evidence, 2)
	})
}

func TestALonelyHolderIsNoVerdict(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		acquire(t, locker(t, dsn, "holder"), agents.ID(1))
		m := open(t, monitor.Config{DSN: dsn, Record: 100 * time.Millisecond})
		until(t, m, toldBy(monitor.SourceProcess))
		assert.Empty(t, judged(t, m))
	})
}

func TestABusyFleetIsNoVerdict(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		for _, name := range []string{"one", "two"} {
			l := locker(t, dsn, name)
			for i := range 4 {
				work.Go(func() {
					for n := i; ctx.Err() == nil; n++ {
						lock, err := l.Acquire(ctx, agents.ID(int64(n%3)))
						if err != nil {
							return
						}
						_ = pause.For(ctx, time.Millisecond) // or hardly a look meets a lock that its holder still has
						_ = lock.Release()
					}
				})
			}
		}
		m := open(t, monitor.Config{DSN: dsn, Record: 250 * time.Millisecond})
		until(t, m, func(s monitor.Snapshot) bool {
			return slices.ContainsFunc(s.Locks, func(l monitor.Lock) bool { return l.HeldSince != nil && l.HeldSince.Source == monitor.SourceProcess })
		})
		assert.Empty(t, judged(t, m))
	})
}

// LISTEN leaves something on a server session, and behind some poolers that is another client's next.
func TestWhereNobodyListensNobodyIsAsked(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"log_statement": "all"}})
		dsn := server.DSN("postgres")
		m := open(t, monitor.Config{DSN: dsn})
		snapshot(t, m)
		log, err := server.LogSince(0)
		require.NoError(t, err)
		require.Contains(t, log, "pg_locks", "control: it looked")
		require.NotContains(t, log, "LISTEN ")

		acquire(t, locker(t, dsn, "holder"), orders.ID(1))
		until(t, m, toldBy(monitor.SourceProcess))
		log, err = server.LogSince(0)
		require.NoError(t, err)
		require.Contains(t, log, `LISTEN "pglatch_reply_`, "control: somebody listens")
	})
}
