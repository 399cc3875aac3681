package pgsession

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// dial returns a session of its own, closed at the end of the test.
func dial(t *testing.T, dsn string, change func(*Config)) *Session {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	config := Config{ConnConfig: cc, T: time.Minute, ApplicationName: "pglatch test"}
	if change != nil {
		change(&config)
	}
	d := NewDialer(config)
	s, err := d.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(false); d.Close() })
	return s
}

func TestQueryReturnsARowAndSurvivesAnErrorOfTheServers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, judge := dial(t, dsn, nil), connect(t, dsn)
	ok, err := s.Try(pairKey, session.Exclusive)
	require.NoError(t, err)
	require.True(t, ok)
	lost := watch(s)
	watched(t, s)
	row, err := s.Query("CREATE TABLE public.x (y int); SELECT 'a', NULL, pg_backend_pid()")
	require.NoError(t, err)
	assert.Equal(t, []string{"a", ""}, row)
	_, err = s.Query("SELECT 1/0, pg_backend_pid()")
	assert.Equal(t, "22012", sqlstate.Of(err))
	assert.True(t, judge.holds(s.PID(), pairKey))
	requireNoLoss(t, s, lost)

	// Cancel requests that hit it are for others.
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				judge.hail(s.PID())
			}
		}
	}()
	for range 50 {
		row, err = s.Query("SELECT 'b', pg_backend_pid() FROM pg_sleep(0.002)")
		if err == nil {
			require.Equal(t, []string{"b"}, row)
		} else {
			require.Equal(t, sqlstate.QueryCanceled, sqlstate.Of(err))
		}
	}
	close(stop)
	<-done

	_, err = s.Query("SELECT 'another backend', 1")
	require.ErrorIs(t, err, session.ErrPooler)
	require.ErrorIs(t, err, session.ErrLost)
	_, err = s.Query("SELECT pg_backend_pid()")
	require.ErrorIs(t, err, session.ErrLost)
}

func TestAPingProlongsBeliefAndWaitsForALateAnswer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	proxy, change := proxied(t, dsn)
	s := dial(t, dsn, func(c *Config) { change(c); c.T = 9 * time.Second })
	ok, err := s.Try(pairKey, session.Exclusive)
	require.NoError(t, err)
	require.True(t, ok)
	before := s.deadline.Load()
	require.NoError(t, s.Ping())
	assert.Greater(t, s.deadline.Load(), before)

	// A ping of the watch is late: ours neither ends it nor the session.
	lost := watch(s)
	watched(t, s)
	proxy.Set(faultproxy.HoldToClient)
	awaiting.Until(t, patience, func() bool { return s.state(time.Now()) == session.Doubtful })
	pinged := make(chan error, 1)
	go func() { pinged <- s.Ping() }()
	proxy.Set(faultproxy.Pass)
	require.NoError(t, <-pinged)
	requireNoLoss(t, s, lost)

	proxy.Set(faultproxy.Hold)
	require.ErrorIs(t, s.Ping(), session.ErrLost)
	assert.Equal(t, session.Lost, s.state(time.Now()))
}

// proxied makes connections go through a proxy.
func proxied(t *testing.T, dsn string) (*faultproxy.Proxy, func(*Config)) {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), net.JoinHostPort(cc.Host, strconv.Itoa(int(cc.Port))))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	via, err := proxy.URL(dsn)
	require.NoError(t, err)
	cc, err = pgx.ParseConfig(via)
	require.NoError(t, err)
	return proxy, func(c *Config) { c.ConnConfig = cc }
}

func TestADialedSessionIsBoundByItsContextOnlyWhileItIsMade(t *testing.T) {
	t.Parallel()
	cc, err := pgx.ParseConfig(pgtest.DSN(t))
	require.NoError(t, err)
	d := NewDialer(Config{ConnConfig: cc, T: time.Minute})
	t.Cleanup(d.Close)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := d.Dial(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(false) })
	cancel()
	require.NoError(t, s.Ping())
	_, err = d.Dial(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestASessionThatOnlyListensLastsUntilItsOwnerFailsToPing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s := dial(t, dsn, briefly)
	ok, err := s.Try(pairKey, session.Exclusive)
	require.NoError(t, err)
	require.True(t, ok)
	lost := make(chan error, 1)
	report := func(err error) { lost <- err }
	tick := time.NewTicker(s.from.config.T / 4)
	defer tick.Stop()
	var last time.Time // before the last ping
	for range 5 {      // which takes longer than T
		s.Listen(report)
		<-tick.C
		last = time.Now()
		require.NoError(t, s.Ping())
	}
	pings := s.from.counters.pings.Load()
	s.Listen(report)
	requireLoss(t, s, lost)
	assert.GreaterOrEqual(t, time.Since(last), s.from.config.T*9/10)
	assert.Equal(t, pings, s.from.counters.pings.Load())
}
