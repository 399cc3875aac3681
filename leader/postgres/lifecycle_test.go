package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

func TestOneLeadsAndTheNextFollowsAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	lead(t, a, "a")
	assert.Equal(t, leader.Term{Era: 1, N: 1}, a.Term())
	assert.False(t, a.CleanStart(), "a row that is missing proves nothing")
	assert.Equal(t, 2, judge.locks(), "the election lock and an incarnation")
	refused(t, b, "b")
	require.NoError(t, a.Renew(t.Context(), "a", ttl))

	waited := make(chan error, 1)
	go func() { waited <- b.Wait(t.Context()) }()
	judge.queued()
	start := time.Now()
	release(t, a, "a")
	require.NoError(t, <-waited)
	lead(t, b, "b")
	t.Logf("hand-over in %v", time.Since(start))
	assert.Equal(t, leader.Term{Era: 1, N: 2}, b.Term())
	assert.True(t, b.CleanStart())
	require.ErrorIs(t, a.Renew(t.Context(), "a", ttl), leader.ErrLost)
	refused(t, a, "a")

	release(t, b, "b")
	release(t, b, "b")
	assert.Zero(t, judge.locks())
	lead(t, a, "a")
	assert.Equal(t, leader.Term{Era: 1, N: 3}, a.Term())
}

func TestALeaderWhoseSessionTheServerEndsKnowsAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	lead(t, a, "a")
	refused(t, b, "b")
	waited := make(chan error, 1)
	go func() { waited <- b.Wait(t.Context()) }()
	judge.queued()
	start := time.Now()
	judge.Exec("SELECT pg_terminate_backend($1)", judge.holder())
	require.NoError(t, <-waited)
	lead(t, b, "b")
	t.Logf("took over in %v", time.Since(start))
	waitLost(t, a)
	require.ErrorIs(t, a.Renew(t.Context(), "a", ttl), leader.ErrLost)
	release(t, a, "a")
	assert.False(t, b.CleanStart(), "the term before was cut off")
	assert.True(t, b.Term().Follows(a.Term()))
	refused(t, a, "a")
}

func TestCloseFreesEverythingAndTheNextAttemptStartsAnew(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	lead(t, a, "a")
	pid := judge.holder()
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	judge.Until(func() bool { return judge.locks() == 0 })
	lead(t, a, "a")
	assert.NotEqual(t, pid, judge.holder())
	assert.False(t, a.CleanStart())
}

func TestAWaitKeepsTheLockForTheNextAttempt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	wait(t, a) // before the first attempt it does not wait
	assert.Zero(t, judge.locks())
	lead(t, a, "a")
	refused(t, b, "b")
	release(t, a, "a")
	wait(t, b)
	pid := judge.holder()
	assert.Equal(t, 1, judge.locks(), "the election lock only")
	refused(t, a, "a")
	require.ErrorIs(t, b.Renew(t.Context(), "b", ttl), leader.ErrLost, "it does not lead yet")
	wait(t, b)
	lead(t, b, "b")
	assert.Equal(t, pid, judge.holder())

	// What ends between the two leaves nothing.
	refused(t, a, "a")
	release(t, b, "b")
	wait(t, a)
	release(t, a, "a")
	assert.Zero(t, judge.locks())
	lead(t, b, "b")
}

func TestAWaitEndsWithItsContextAndHoldsNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, nil), newJudge(t, dsn)
	lead(t, a, "a")
	refused(t, b, "b")
	why := errors.New("because")
	for range 5 {
		ctx, cancel := context.WithCancelCause(t.Context())
		waited := make(chan error, 1)
		go func() { waited <- b.Wait(ctx) }()
		judge.queued()
		cancel(why)
		require.ErrorIs(t, <-waited, why)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded)
	judge.Until(func() bool { return judge.locks() == 2 }) // what a session that was dropped waited for ends soon
	release(t, a, "a")
	assert.Zero(t, judge.locks())
}

func TestAWaitInADeadNetworkEndsWithTheCauseOfItsContext(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	proxy, _, change := throughProxy(t, dsn)
	a, b, judge := newBackend(t, dsn, nil), newBackend(t, dsn, change), newJudge(t, dsn)
	lead(t, a, "a")
	refused(t, b, "b")
	why := errors.New("because")
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- b.Wait(ctx) }()
	judge.queued()
	proxy.Set(faultproxy.Hold)
	cancel(why)
	err := <-waited
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, leader.ErrConnection)
}

// freed checks that no lock is held after a call. If that had to drop its session, the server may see it later.
func (j judge) freed(err error) {
	j.TB().Helper()
	if errors.Is(err, leader.ErrConnection) {
		j.Until(func() bool { return j.locks() == 0 })
	}
	require.Zero(j.TB(), j.locks())
}

func TestACancelThatRacesWithTheGrantLeaksNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, judge := newBackend(t, dsn, noTerms), newBackend(t, dsn, noTerms), newJudge(t, dsn)
	for i := range 100 {
		lead(t, a, "a")
		refused(t, b, "b")
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() { waited <- b.Wait(ctx) }()
		if i%2 == 0 {
			judge.queued()
		}
		go cancel()
		release(t, a, "a")
		err := <-waited
		if err == nil {
			assert.Equal(t, 1, judge.locks())
		} else {
			require.ErrorIs(t, err, context.Canceled)
			judge.freed(err)
		}
		release(t, b, "b")
		judge.freed(err)
	}
}

func TestWaitingAddsNothingToTheServersLog(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	server := startQuietServer(t)
	a, b, judge := newBackend(t, server.DSN(""), nil), newBackend(t, server.DSN(""), nil), newJudge(t, server.DSN(""))
	lead(t, a, "a")
	wait := func() (before int64, err error) {
		refused(t, b, "b")
		before, err = server.LogOffset()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // some wait steps
		defer cancel()
		err = b.Wait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return before, err
	}
	before, err := wait()
	for range 5 {
		if errors.Is(err, leader.ErrConnection) { // a busy server took too long to end the wait, and logs the session's end
			judge.Until(func() bool {
				return dbtest.Ask[int](judge, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'b'") == 0
			})
			before, err = wait()
		}
	}
	release(t, a, "a")
	lead(t, b, "b")
	release(t, b, "b")
	log, err := server.LogSince(before)
	require.NoError(t, err)
	assert.Empty(t, log)

	// The control: the usual way to wait is logged.
	lead(t, a, "a")
	_, err = judge.Pool.Exec(t.Context(), "SET lock_timeout = 20; SELECT pg_advisory_lock(1, 100)")
	require.Error(t, err)
	log, err = server.LogSince(before)
	require.NoError(t, err)
	assert.Contains(t, log, "lock timeout")
}

func TestAnIdentityIsShownAndALongOneLosesItsMiddle(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	show := func() string {
		return dbtest.Ask[string](judge, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", judge.holder())
	}
	lead(t, a, "host-1f3a")
	assert.Equal(t, "host-1f3a", show())

	long := "café-" + strings.Repeat("h", 100) + "-k3j4h5g6"
	await.Until(t, patience, func() bool { // another identity is another candidate, whose turn comes when the server has ended the session of the first
		won, err := a.TryAcquire(t.Context(), long, ttl)
		return assert.NoError(t, err) && won
	})
	assert.Equal(t, "caf??-"+strings.Repeat("h", 22)+"..."+strings.Repeat("h", 23)+"-k3j4h5g6", show())
	assert.Len(t, show(), 63)
	holder, ok, err := a.Leader(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, long, holder.Identity)
}

func TestInvalidArgumentsAreNamed(t *testing.T) {
	t.Parallel()
	a := newBackend(t, pgtest.DSN(t), nil)
	for want, try := range map[string]func() (bool, error){
		"Identity": func() (bool, error) { return a.TryAcquire(t.Context(), "", ttl) },
		"499ms":    func() (bool, error) { return a.TryAcquire(t.Context(), "a", 499*time.Millisecond) },
		"25h":      func() (bool, error) { return a.TryAcquire(t.Context(), "a", 25*time.Hour) },
	} {
		won, err := try()
		assert.False(t, won)
		var invalid *leader.ConfigError
		require.ErrorAs(t, err, &invalid)
		require.ErrorContains(t, err, want)
	}
	for want, config := range map[string]postgres.Config{
		"Key":                         {DSN: "postgres://localhost"},
		"DSN":                         {Key: key},
		"a port that is not a number": {Key: key, DSN: "postgres://me:secret@localhost:port"},
		"schema.table":                {Key: key, DSN: "postgres://localhost", Table: "a.b.c"},
		"use table":                   {Key: key, DSN: "postgres://localhost", Table: `x"; DROP TABLE y`},
		"not made by pgx.ParseConfig": {Key: key, ConnConfig: emptyConnConfig},
	} {
		_, err := postgres.New(config)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestAnUnreachableServerIsAConnectionError(t *testing.T) {
	t.Parallel()
	a := newBackend(t, "postgres://postgres:secret@127.0.0.1:1/postgres", nil)
	_, err := a.TryAcquire(t.Context(), "a", ttl)
	require.ErrorIs(t, err, leader.ErrConnection)
	assert.NotContains(t, err.Error(), "secret")
	require.ErrorIs(t, a.Wait(t.Context()), leader.ErrConnection)
	_, _, err = a.Leader(t.Context())
	require.ErrorIs(t, err, leader.ErrConnection)
	release(t, a, "a")
}

func TestAnAttemptAfterTheEndOfItsContextTakesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	lead(t, a, "a")
	release(t, a, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	won, err := a.TryAcquire(ctx, "a", ttl)
	require.ErrorIs(t, err, context.Canceled)
	assert.False(t, won)
	assert.Zero(t, judge.locks())
}
