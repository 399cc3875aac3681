package pgsession

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

func TestAWatchReportsThatTheServerEndedTheSession(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, other := take(t, newPool(t, dsn, nil), pairKey), connect(t, dsn)
	lost := watch(s)
	watched(t, s)
	other.terminate(s.PID())
	loss := requireLoss(t, s, lost)
	assert.Equal(t, "57P01", sqlstate.Of(loss.Cause))
	require.ErrorIs(t, s.Unlock(pairKey, session.Exclusive), session.ErrLost)
	_, err := s.Try(pairKey, session.Exclusive)
	require.ErrorIs(t, err, session.ErrLost)
	assert.EqualValues(t, 1, s.pool.Stats().Lost)
}

func TestAWatchReportsThatTheServerStopped(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(context.Context, *pgserver.Server) error{
		"fast":      func(ctx context.Context, s *pgserver.Server) error { return s.Stop(ctx, pgserver.Fast) },
		"immediate": func(ctx context.Context, s *pgserver.Server) error { return s.Stop(ctx, pgserver.Immediate) },
		"kill -9":   func(_ context.Context, s *pgserver.Server) error { return s.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t, pgserver.Options{})
			s := take(t, newPool(t, server.DSN(""), nil), pairKey)
			lost := watch(s)
			watched(t, s)
			require.NoError(t, stop(t.Context(), server))
			requireLoss(t, s, lost)
		})
	}
}

func TestAWatchReportsAKilledSession(t *testing.T) {
	t.Parallel()
	for _, begun := range []bool{true, false} {
		dsn := pgtest.DSN(t)
		judge := connect(t, dsn)
		s := take(t, newPool(t, dsn, nil), pairKey)
		lost := watch(s)
		if begun {
			watched(t, s)
		}
		s.Kill(assert.AnError)
		require.ErrorIs(t, requireLoss(t, s, lost).Cause, assert.AnError)
		judge.gone(s.PID())
	}
}

func TestPingsKeepAHeldSessionAlive(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := newPool(t, dsn, briefly)
	s := take(t, p, pairKey)
	before := p.Stats()
	lost := watch(s)

	// The control: the server ends a session that is as silent and does not ping.
	silent := connect(t, dsn)
	silent.exec("SET idle_session_timeout = '" + Milliseconds(p.config.T) + "'; SELECT pg_advisory_lock(7, 8)")
	_, err := silent.conn.ReceiveMessage(t.Context())
	require.Error(t, err)
	assert.Equal(t, "57P05", sqlstate.Of(err))

	awaiting.Until(t, patience, func() bool { return p.Stats().Pings > before.Pings+3 }) // longer than T
	requireNoLoss(t, s, lost)
	after := p.Stats()
	assert.Greater(t, after.PIDChecks, before.PIDChecks+3)
	assert.Equal(t, before.Watches+1, after.Watches)
	assert.True(t, connect(t, dsn).holds(s.PID(), pairKey))
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
}

func TestAWatchIsInterruptedByUnlockAThousandTimes(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	p, other := newPool(t, dsn, nil), connect(t, dsn)
	s := acquire(t, p)
	var lost <-chan error
	for range 1000 {
		ok, err := s.Try(pairKey, session.Exclusive)
		require.NoError(t, err)
		require.True(t, ok)
		lost = watch(s)
		watched(t, s)
		require.NoError(t, s.Unlock(pairKey, session.Exclusive))
		requireNoLoss(t, s, lost)
	}
	assert.EqualValues(t, 1000, p.Stats().Watches)
	assert.Equal(t, "0", other.locks(s.PID()))

	ok, err := s.Try(pairKey, session.Exclusive)
	require.NoError(t, err)
	require.True(t, ok)
	lost = watch(s)
	watched(t, s)
	other.terminate(s.PID())
	requireLoss(t, s, lost)
}

// A hurry is meant for a statement; it can come late, when the lock has passed
// on and its session is under watch.
func TestAHurryThatComesLateIsNoLoss(t *testing.T) {
	t.Parallel()
	p := newPool(t, pgtest.DSN(t), nil)
	s := take(t, p, pairKey)
	lost := watch(s)
	watched(t, s)
	s.Hurry()
	select {
	case err := <-lost:
		require.NoError(t, err)
	case <-time.After(2 * graceInHurry):
	}
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
}

// throughProxy opens a pool on brief leases behind a proxy.
func throughProxy(t *testing.T, dsn string, change func(*Config)) (*Pool, *faultproxy.Proxy) {
	t.Helper()
	proxy, through := proxied(t, dsn)
	return newPool(t, dsn, func(c *Config) {
		through(c)
		if change != nil {
			change(c)
		}
	}), proxy
}

func TestASilentServerMakesASessionDoubtfulAndThenLost(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]faultproxy.Mode{
		"both ways": faultproxy.Hold, "to the server": faultproxy.HoldToServer, "to the client": faultproxy.HoldToClient,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Between doubt and loss are two seconds, which a test on a busy machine can miss.
			seen := false
			for tries := 0; tries < 5 && !seen; tries++ {
				seen = loseToSilence(t, mode)
			}
			require.True(t, seen, "never seen held and then doubtful; or the machine is too busy to look in time")
		})
	}
}

// loseToSilence reports whether the session was seen held, and then doubtful before
// it was lost to the silence.
func loseToSilence(t *testing.T, mode faultproxy.Mode) (seen bool) {
	t.Helper()
	dsn := pgtest.DSN(t)
	p, proxy := throughProxy(t, dsn, briefly)
	s, judge := take(t, p, pairKey), connect(t, dsn)
	lost := watch(s)
	watched(t, s)
	held, doubtful := s.state(time.Now()) == session.Held, false
	proxy.Set(mode)
	// While it is believed in, the server must still hold it.
	for state := s.state(time.Now()); state != session.Lost; state = s.state(time.Now()) {
		doubtful = doubtful || state == session.Doubtful
		if holds := judge.holds(s.PID(), pairKey); s.state(time.Now()) != session.Lost {
			require.True(t, holds, "believed in a lock that the server gave away")
		}
	}
	loss := requireLoss(t, s, lost)
	if sqlstate.Of(loss.Cause) != "57P05" { // else this process was so slow that the server's own timeout came first
		require.ErrorIs(t, loss.Cause, session.ErrSilent)
	}
	silent := errors.Is(loss.Cause, session.ErrSilent)
	proxy.Set(faultproxy.Pass)
	judge.gone(s.PID())
	assert.Equal(t, session.Lost, s.state(time.Now()), "a lost session never comes back")
	return held && doubtful && silent
}

func TestAnOperationDuringAPingDoesNotPutOffTheLoss(t *testing.T) {
	t.Parallel()
	p, proxy := throughProxy(t, pgtest.DSN(t), func(c *Config) { c.T = 12 * time.Second })
	s := take(t, p, pairKey)
	watch(s)
	watched(t, s)
	proxy.Set(faultproxy.Hold)
	end := time.Duration(s.deadline.Load()) + p.config.margin() // of the session, at the server
	soon := end - p.config.statementBound()                     // a statement would end after the session
	awaiting.Until(t, patience, func() bool { return s.pingSent.Load() != 0 && boottime.Now() > soon })
	_, err := s.Try(singleKey, session.Exclusive)
	require.ErrorIs(t, err, session.ErrLost)
	assert.Less(t, boottime.Now(), end)
	proxy.Set(faultproxy.Pass)
}

func TestALateAnswerIsNoLoss(t *testing.T) {
	t.Parallel()
	p, proxy := throughProxy(t, pgtest.DSN(t), func(c *Config) { c.T = 9 * time.Second })
	s := take(t, p, pairKey)
	lost := watch(s)
	proxy.Set(faultproxy.HoldToClient)
	awaiting.Until(t, patience, func() bool { return s.state(time.Now()) == session.Doubtful })
	proxy.Set(faultproxy.Pass)
	awaiting.Until(t, patience, func() bool { return s.state(time.Now()) == session.Held })
	proxy.Delay(100 * time.Millisecond)
	before := p.Stats().Pings
	awaiting.Until(t, patience, func() bool { return p.Stats().Pings > before+1 })
	requireNoLoss(t, s, lost)
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
}

func TestAResetConnectionIsALoss(t *testing.T) {
	t.Parallel()
	p, proxy := throughProxy(t, pgtest.DSN(t), nil)
	s := take(t, p, pairKey)
	lost := watch(s)
	watched(t, s)
	proxy.Reset()
	requireLoss(t, s, lost)
}

// A stuck connection keeps what is written, once it is set to: the writer waits for open, and nothing arrives.
type stuck struct {
	net.Conn
	armed, open chan struct{}
	writing     chan struct{} // closed when somebody writes
	once        *sync.Once
}

func (c stuck) Write(b []byte) (int, error) {
	select {
	case <-c.armed:
		c.once.Do(func() { close(c.writing) })
		<-c.open
		return len(b), nil
	default:
		return c.Conn.Write(b)
	}
}

// Who calls the watch off bounds the ping that is under way. That ping may not have begun to wait for its answer yet: it must not
// go on with its own bound then, which is the rest of the lease.
func TestAPingThatIsBeingSentWhenTheWatchIsCalledOffIsBoundedToo(t *testing.T) {
	t.Parallel()
	c := stuck{armed: make(chan struct{}), open: make(chan struct{}), writing: make(chan struct{}), once: new(sync.Once)}
	p := newPool(t, pgtest.DSN(t), func(config *Config) {
		config.T = time.Hour
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return stuck{conn, c.armed, c.open, c.writing, c.once}, err
		}
	})
	s := take(t, p, pairKey)
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	s.mu.Lock()
	s.cancelWatch, s.watchDone = cancel, ended
	s.mu.Unlock()
	close(c.armed)
	go func() { // a watch whose ping is due
		_ = s.ping()
		s.unwatched()
		close(ended)
	}()
	<-c.writing
	require.ErrorIs(t, s.Do([]*session.Op{try(pairOf(1), session.Exclusive)}, time.Millisecond), session.ErrPending)
	require.Error(t, ctx.Err(), "the watch was called off")
	close(c.open)
	answered := make(chan error, 1)
	go func() { answered <- s.Do(nil, 0) }()
	require.ErrorIs(t, awaiting.Receive(t, patience, answered, "it waits for the ping as long as the lease lasts"), session.ErrLost)
}
