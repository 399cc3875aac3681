package postgres_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

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

// strictServer is a server of a role that has a password and no rights but to connect.
func strictServer(t *testing.T) (address string) {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin := pgtest.Connect(t, server.DSN(""))
	var hba string
	require.NoError(t, admin.QueryRow(t.Context(), "SHOW hba_file").Scan(&hba))
	require.NoError(t, os.WriteFile(hba, []byte("host all app 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n"), 0o600))
	_, err := admin.Exec(t.Context(), "CREATE ROLE app LOGIN PASSWORD 'right'; REVOKE CREATE ON SCHEMA public FROM PUBLIC; SELECT pg_reload_conf()") // before PostgreSQL 15 all have it
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), postgres.Schema("terms"))
	require.NoError(t, err)
	address = net.JoinHostPort(server.Host(), strconv.Itoa(server.Port()))
	await.Until(t, patience, func() bool { // the server reads the file when it gets to it
		conn, err := pgx.Connect(t.Context(), "postgres://app:wrong@"+address+"/postgres")
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return sqlstate.Of(err) == "28P01" // another error says nothing of the file
	})
	return address
}

// standFor is Elector.Run with work that ends it.
func standFor(t *testing.T, backend leader.Backend, config leader.Config) error {
	t.Helper()
	config.Name, config.Backend, config.LeaseDuration = "scheduler", backend, ttl
	e, err := leader.New(config)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = e.Run(ctx, func(context.Context) error { return nil })
	require.NoError(t, ctx.Err(), "it tried for ever")
	return err
}

func TestRunReturnsWhatPostgreSQLRefusesAfterTheFirstAttempt(t *testing.T) {
	t.Parallel()
	address := strictServer(t)
	at := func(password, database string) string {
		return "postgres://app:" + password + "@" + address + "/" + database
	}
	for name, row := range map[string]struct {
		key    int32
		dsn    string
		change func(*postgres.Config)
		begins string
		says   string
	}{
		"a wrong password": {1, at("wrong", "postgres"), nil, `leader: scheduler: password authentication failed for user "app"`, "28P01"},
		"no such database": {2, at("right", "nowhere"), nil, `leader: scheduler: database "nowhere" does not exist`, "3D000"},
		"no table": {
			3, at("right", "postgres"), func(c *postgres.Config) { c.CreateTable = false },
			"leader: scheduler: the table public.pglatch_election, which counts terms, does not exist: create it", "42P01",
		},
		"no right to create the table": {4, at("right", "postgres"), nil, "leader: scheduler: the role may not create the table public.pglatch_election", "42501"},
		"no schema for the table": {
			5, "postgres://postgres@" + address + "/postgres", func(c *postgres.Config) { c.Table = "nowhere.terms" },
			"leader: scheduler: the schema of the table nowhere.terms does not exist", "3F000",
		},
		"no right to count terms": {
			6, at("right", "postgres"), func(c *postgres.Config) { c.Table = "terms" },
			"leader: scheduler: the role may not count terms in terms: GRANT SELECT, INSERT, UPDATE", "42501",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := standFor(t, newBackend(t, row.dsn, func(c *postgres.Config) {
				c.Key = namespace.Pair(2, row.key) // an election of its own: no other candidate keeps it waiting
				if row.change != nil {
					row.change(c)
				}
			}), leader.Config{})
			require.ErrorIs(t, err, leader.ErrPermanent)
			require.ErrorIs(t, err, leader.ErrConnection)
			assert.True(t, strings.HasPrefix(err.Error(), row.begins), err.Error())
			assert.Contains(t, err.Error(), row.says)
			assert.NotContains(t, err.Error(), "right@", "no password")
			assert.NotContains(t, err.Error(), "unreachable")
		})
	}
	require.NoError(t, standFor(t, newBackend(t, at("right", "postgres"), noTerms), leader.Config{}), "the control: with the right settings it leads")
}

func TestANodeThatKeepsTryingLeadsOnceTheTableIsThere(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	backend := newBackend(t, dsn, func(c *postgres.Config) { c.CreateTable = false })
	var once sync.Once
	e, err := leader.New(leader.Config{
		Name: "scheduler", Backend: backend, LeaseDuration: ttl, KeepTrying: true, Retry: backoff.Fixed{Interval: 10 * time.Millisecond},
		Callbacks: leader.Callbacks{OnError: func(err error) {
			var missing *postgres.TableError
			if assert.ErrorAs(t, err, &missing) && assert.True(t, missing.Missing) {
				once.Do(func() { judge.Exec(postgres.Schema("")) })
			}
		}},
	})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	defer func() { require.NoError(t, e.Shutdown(context.Background())) }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, e.WaitForLeadership(ctx))
}

func TestARefusedPortIsNotPermanent(t *testing.T) {
	t.Parallel()
	backend := newBackend(t, "postgres://app:secret@127.0.0.1:1/none", nil)
	_, err := backend.TryAcquire(t.Context(), "a", ttl)
	require.ErrorIs(t, err, leader.ErrConnection)
	require.NotErrorIs(t, err, leader.ErrPermanent)
	assert.NotContains(t, err.Error(), "backend unreachable")
	assert.NotContains(t, err.Error(), "secret")
	require.ErrorIs(t, backend.Wait(t.Context()), leader.ErrConnection)
	_, _, err = backend.Leader(t.Context())
	require.ErrorIs(t, err, leader.ErrConnection)
	release(t, backend, "a")
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: backend})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()), "it can be up later")
	assert.NotEqual(t, leader.Stopped, e.State())
	require.NoError(t, e.Shutdown(context.Background()))
}
