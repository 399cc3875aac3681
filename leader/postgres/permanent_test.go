package postgres_test

import (
	"context"
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
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

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
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: backend})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()), "it can be up later")
	assert.NotEqual(t, leader.Stopped, e.State())
	require.NoError(t, e.Shutdown(context.Background()))
}
