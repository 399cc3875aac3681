package pgsession

import (
	"context"
	"errors"
	"net"
	"strconv"
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
	"github.com/pglatch/pglatch/namespace"
)

func TestAFullLockTableCostsASessionNoneOfItsLocks(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{
		"max_connections": "20", "max_locks_per_transaction": "10", "autovacuum": "off",
	}})
	dsn := server.DSN("")
	s := take(t, newPool(t, dsn, nil), pairKey)
	_, err := connect(t, dsn).try("SELECT pg_advisory_lock(2, i) FROM generate_series(1, 100000) AS i")
	require.Equal(t, sqlstate.OutOfMemory, sqlstate.Of(err))

	ok, err := s.Try(singleKey, session.Exclusive)
	require.ErrorIs(t, err, session.ErrLockTableFull)
	assert.False(t, ok)
	assert.Equal(t, session.Held, s.state(time.Now()))
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
}

func TestTheErrorOfABatchWhoseSessionIsLostMeanwhileIsTheLoss(t *testing.T) {
	t.Parallel()
	s := acquire(t, newPool(t, pgtest.DSN(t), nil))
	trip(t, s, 2, dividing)
	ops := []*session.Op{try(pairOf(1), session.Exclusive), try(pairOf(2), session.Exclusive)}
	s.batch = &batch{ops: ops}
	require.NoError(t, s.send(s.batch, ops))
	for done := false; !done; {
		var err error
		done, err = s.step(s.batch)
		require.NoError(t, err)
	}
	failed := s.judge(s.batch)
	require.Error(t, failed)
	require.NotErrorIs(t, failed, session.ErrLost)
	s.Kill(assert.AnError)
	require.ErrorIs(t, s.resolveBatch(failed), session.ErrLost)
}

func TestASessionThatIsKilledWhileItIsReleasedIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	p := newPool(t, pgtest.DSN(t), nil)
	s := acquire(t, p)
	s.mu.Lock()
	released := make(chan struct{})
	go func() { s.Close(true); close(released) }()
	require.Never(t, func() bool { return closedWithin(0, released) }, 50*time.Millisecond, 10*time.Millisecond)
	_ = s.lose(assert.AnError) // what Kill does under mu
	s.mu.Unlock()
	<-released
	assert.Zero(t, p.pool.Stat().IdleConns())
	ok, err := acquire(t, p).Try(pairKey, session.Exclusive)
	require.NoError(t, err)
	assert.True(t, ok)
}

// A cancel request that was meant for a statement of the connection's last user.
func TestALookThatIsCanceledIsMadeAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, judge := acquire(t, newPool(t, dsn, nil)), connect(t, dsn)
	hail := startHail(connect(t, dsn), s.PID())
	defer hail.stop()
	tags := make([]namespace.Tag, 300)
	for i := range tags {
		tags[i] = namespace.SingleRaw(int64(i)).Tag()
	}
	for range 500 {
		hail.kick()
		op := &session.Op{Any: tags}
		require.NoError(t, s.Run(op))
		require.NoError(t, op.Err)
		require.True(t, op.Held)
		i := op.Index
		require.Equal(t, "1", judge.locks(s.PID()), "a key of a canceled look stays locked")
		require.NoError(t, s.Unlock(tags[i], session.Exclusive))
	}
}

func TestADeadlineBoundsTheQuestionToAnIdleConnection(t *testing.T) {
	t.Parallel()
	p, proxy := throughProxy(t, pgtest.DSN(t), nil)
	old, young := acquire(t, p), acquire(t, p)
	old.Close(true)
	released := boottime.Now()
	awaiting.Until(t, patience, func() bool { return boottime.Now()-released > askAfter*5/4 })
	young.Close(true)
	proxy.Set(faultproxy.Hold)
	defer proxy.Set(faultproxy.Pass)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := p.Acquire(ctx)
	require.NoError(t, err, "it was in use just now")
	defer first.Close(false)
	began := time.Now()
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = p.Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(began), p.config.statementBound())
}

func TestAConnectionThatIsCanceledInTheMakingIsMadeAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	const name = "in the making"
	p, hunter := newPool(t, dsn, func(c *Config) { c.ApplicationName = name }), connect(t, dsn)
	ctx, cancel := context.WithCancel(t.Context())
	var hits int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			n, err := strconv.ParseInt(hunter.exec("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE state = 'active' AND application_name = '" + name + "'")[0], 10, 64)
			assert.NoError(t, err)
			hits += n
		}
	})
	for range 100 {
		s, err := p.Acquire(t.Context())
		if assert.NoError(t, err) {
			s.Close(false)
		}
	}
	cancel()
	wg.Wait()
	assert.Positive(t, hits)
	t.Log(hits, "cancel requests")
}

// A boundless connection is one that nothing can take from who waits for it.
type boundless struct{ net.Conn }

var errBoundless = errors.New("no deadlines here")

func (boundless) SetDeadline(time.Time) error { return errBoundless }

func TestAConnectionThatCanHaveNoDeadlineIsRefused(t *testing.T) {
	t.Parallel()
	_, err := openPool(t, pgtest.DSN(t), func(c *Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return boundless{conn}, err
		}
	})
	require.ErrorIs(t, err, errBoundless)
	require.ErrorIs(t, err, session.ErrUnavailable)
}
