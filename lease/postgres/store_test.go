package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/postgres"
)

// life goes through all that a lease can meet.
func life(t *testing.T, s *postgres.Store, j judge) {
	t.Helper()
	ctx := t.Context()
	request := lease.AcquireRequest{
		Name: `wünsch "dir' \was/.../{x,y}`, Holder: `a'\"b`, TTL: ttl, IdempotencyKey: "k,{1}", Metadata: map[string]string{"a": `'"\ é`, "": ""},
		LockDelay: time.Hour, MinHold: 10 * time.Minute, MaxLifetime: 2 * time.Hour,
	}
	l, err := s.Acquire(ctx, request)
	require.NoError(t, err)
	assert.Equal(t, request.Name, l.Name)
	assert.Equal(t, request.Holder, l.Holder)
	assert.Equal(t, request.Metadata, l.Metadata)
	assert.Equal(t, ttl, l.Remaining)
	assert.Equal(t, ttl, l.ExpiresAt.Sub(l.AcquiredAt))
	assert.WithinDuration(t, time.Now(), l.AcquiredAt, patience)

	again, err := s.Acquire(ctx, request)
	require.NoError(t, err)
	assert.Equal(t, l.Claim, again.Claim)
	assert.LessOrEqual(t, again.Remaining, l.Remaining)
	other := request
	other.Holder = "other"
	_, err = s.Acquire(ctx, other)
	held := requireAs[*lease.HeldError](t, err)
	assert.Equal(t, request.Holder, held.Holder)
	assert.Greater(t, held.Remaining, time.Hour)

	renewed, err := s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: 10 * time.Hour})
	require.NoError(t, err)
	assert.Equal(t, 2*time.Hour, renewed.ExpiresAt.Sub(l.AcquiredAt), "the lifetime bounds it")
	wrong := l.Claim
	wrong.Token++
	assert.Equal(t, &lease.StaleError{Name: l.Name, Token: true}, s.Release(ctx, wrong))

	record, err := s.Get(ctx, l.Name)
	require.NoError(t, err)
	assert.Equal(t, lease.Held, record.State)
	assert.Equal(t, l.Claim, record.Claim)
	require.NoError(t, s.Release(ctx, l.Claim))
	require.NoError(t, s.Release(ctx, l.Claim), "once more")
	_, err = s.Acquire(ctx, other)
	assert.Empty(t, requireAs[*lease.HeldError](t, err).Holder, "the minimum hold keeps it")

	j.exec("UPDATE pglatch_lease.locks SET available_at = now()")
	next := acquire(t, s, l.Name, "next")
	assert.Greater(t, next.Token, l.Token)
	j.expire(l.Name)
	_, err = s.Renew(ctx, lease.RenewRequest{Claim: next.Claim, TTL: ttl})
	assert.Equal(t, next.ExpiresAt.Add(-48*time.Hour), requireAs[*lease.ExpiredError](t, err).At)
	requireAs[*lease.ExpiredError](t, s.Release(ctx, next.Claim))
	result, err := s.Sweep(ctx, lease.SweepRequest{})
	require.NoError(t, err)
	assert.Equal(t, lease.SweepResult{Expired: 1, Removed: 1}, result)
	requireAs[*lease.NotFoundError](t, s.Release(ctx, next.Claim))
	assert.Greater(t, acquire(t, s, l.Name, "last").Token, next.Token)
	count := 0
	for _, err := range s.List(ctx, lease.ListRequest{Prefix: "wünsch"}) {
		require.NoError(t, err)
		count++
	}
	assert.Equal(t, 1, count)
}

func requireAs[E error](t *testing.T, err error) E {
	t.Helper()
	var e E
	require.ErrorAs(t, err, &e)
	return e
}

func TestAStoreWorksInEveryModeOfTheProtocol(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run("mode "+mode, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			j := newJudge(t, dsn)
			if mode != "" {
				dsn += "&default_query_exec_mode=" + mode
			}
			life(t, newStore(t, dsn), j)
		})
	}
}

func TestAStoreKeepsNothingInASession(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"each statement on a session of its own": "",
		"sessions that others left in disorder": `CREATE SCHEMA IF NOT EXISTS evil;
			CREATE OR REPLACE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''2001-01-01''::timestamptz';
			CREATE FUNCTION evil.older(timestamptz, timestamptz) RETURNS bool LANGUAGE sql AS 'SELECT false';
			CREATE FUNCTION evil.zero(numeric, int) RETURNS numeric LANGUAGE sql AS 'SELECT 0.0';
			CREATE OPERATOR evil.> (FUNCTION = evil.older, LEFTARG = timestamptz, RIGHTARG = timestamptz);
			CREATE OPERATOR evil.* (FUNCTION = evil.zero, LEFTARG = numeric, RIGHTARG = int);
			CREATE OR REPLACE FUNCTION evil.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT ''on''';
			SET search_path = evil, pg_catalog; SET datestyle = 'SQL, DMY'; SET intervalstyle = 'sql_standard'; SET timezone = 'Asia/Kathmandu';
			SET lock_timeout = '3h'; SET synchronous_commit = off; SET bytea_output = escape; SET extra_float_digits = -3`,
		"repeatable read": "SET default_transaction_isolation = 'repeatable read'",
		"serializable":    "SET default_transaction_isolation = 'serializable'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			config, err := pgxpool.ParseConfig(dsn)
			require.NoError(t, err)
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			config.AfterRelease = func(*pgx.Conn) bool { return settings != "" }
			config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, settings)
				return err
			}
			config.MaxConns = 1
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			s := open(t, "", func(c *postgres.Config) { c.Pool = pool })
			require.NoError(t, s.Migrate(t.Context()))
			life(t, s, newJudge(t, dsn))
		})
	}
}

func TestAConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := postgres.New(postgres.Config{})
	require.EqualError(t, err, "lease: Config.DSN is empty: set it to the database's URL, such as postgres://localhost/shop, or set Pool")
	_, err = postgres.New(postgres.Config{DSN: "x", LockTimeout: -1})
	require.ErrorIs(t, err, lease.ErrInvalid)
	for _, dsn := range []string{"postgres://u:hunter2@localhost:port/db", "user=u password=hunter2 port=no", "postgres://u:hunter2@h/db?pool_max_conns=x", "host='unclosed password=hunter2"} {
		_, err = postgres.New(postgres.Config{DSN: dsn})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	server := startServer(t, map[string]string{"max_connections": "8", "superuser_reserved_connections": "3"})
	admin := newJudge(t, server.DSN(""))
	admin.exec("CREATE ROLE plain LOGIN PASSWORD 'hunter2'")
	dsn := strings.Replace(server.DSN(""), "postgres@", "plain:hunter2@", 1)
	s := open(t, dsn, nil)
	_, err := s.Get(t.Context(), "x")
	for _, part := range []string{"Store.Migrate", "postgres.Schema"} {
		require.ErrorContains(t, err, part)
	}
	_, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorContains(t, err, "Store.Migrate")
	require.ErrorIs(t, err, lease.ErrNotReady)
	require.NotErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, s.Migrate(t.Context()), "may not make the schema")

	require.NoError(t, open(t, server.DSN(""), nil).Migrate(t.Context()))
	_, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorContains(t, err, "GRANT USAGE ON SCHEMA pglatch_lease")
	require.ErrorIs(t, err, lease.ErrNotReady)
	stranger := open(t, strings.Replace(dsn, "plain", "stranger", 1), nil)
	_, err = stranger.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorIs(t, err, lease.ErrNotReady)
	assert.NotContains(t, err.Error(), "hunter2")
	stranger.Close()
	_, err = stranger.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorIs(t, err, lease.ErrClosed)
	admin.exec("GRANT USAGE ON SCHEMA pglatch_lease TO plain")
	_, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorContains(t, err, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pglatch_lease")
	admin.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pglatch_lease TO plain")
	require.NoError(t, s.Migrate(t.Context()), "it is there")
	acquire(t, s, "x", "h")
	admin.exec("ALTER ROLE plain SET default_transaction_read_only = on")
	readOnly := open(t, dsn, nil)
	_, err = readOnly.Acquire(t.Context(), lease.AcquireRequest{Name: "y", Holder: "h", TTL: ttl})
	require.ErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, err, "target_session_attrs=read-write")
	readOnly.Close()

	// No connection is left, once the server has ended the sessions of the stores that are closed.
	var full *postgres.Store
	await.Until(t, patience, func() bool {
		for {
			conn, err := pgx.Connect(t.Context(), dsn)
			if err != nil {
				break
			}
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
		}
		full = open(t, dsn, nil)
		_, err = full.Acquire(t.Context(), lease.AcquireRequest{Name: "z", Holder: "h", TTL: ttl})
		if errors.Is(err, lease.ErrBusy) {
			return true
		}
		full.Close()
		return false
	}, "too many connections")
	assert.NotContains(t, err.Error(), "hunter2")
	require.NoError(t, server.Kill())
	_, err = full.Get(t.Context(), "z")
	require.ErrorIs(t, err, lease.ErrBusy, "nobody listens")
	assert.NotContains(t, err.Error(), "hunter2")
}

// A row that somebody keeps costs the lease whose it is one attempt, and the others nothing.
// A vacuum that shortens the table, or a migration, has a lock of the whole table for a moment.
func TestAnOperationWaitsForALockOfTheWholeTable(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	newStore(t, dsn)
	s, j := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = patience }), newJudge(t, dsn)
	l := acquire(t, s, "held", "a")
	for i, operate := range []func() error{
		func() error {
			_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "new", Holder: "a", TTL: ttl})
			return err
		},
		func() error {
			_, err := s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: ttl})
			return err
		},
		func() error { return s.Release(t.Context(), l.Claim) },
	} {
		tx := j.begin()
		_, err := tx.Exec(t.Context(), `LOCK TABLE pglatch_lease.locks IN ACCESS EXCLUSIVE MODE`)
		require.NoError(t, err)
		result := make(chan error, 1)
		go func() { result <- operate() }()
		j.eventually(func() bool { // an operation that shares its statement waits for less
			return len(result) > 0 || one[bool](j, `SELECT coalesce(max(clock_timestamp() - l.waitstart) > interval '20 ms', false) FROM pg_locks AS l
				WHERE NOT l.granted AND l.relation = 'pglatch_lease.locks'::regclass`)
		})
		require.Empty(t, result, i)
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, <-result, i)
	}
}

func TestARenewalOfManyDoesNotWaitForARowThatAnotherTransactionHas(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	var all []lease.RenewRequest
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, lease.RenewRequest{Claim: acquire(t, s, name, "x").Claim, TTL: 2 * ttl})
	}
	tx := j.begin()
	_, err := tx.Exec(t.Context(), "SELECT FROM pglatch_lease.locks WHERE name = 'b' FOR UPDATE")
	require.NoError(t, err)
	results, err := s.RenewAll(t.Context(), all)
	require.NoError(t, err)
	require.ErrorIs(t, results[1].Err, lease.ErrBusy)
	require.NoError(t, results[0].Err)
	require.NoError(t, results[2].Err)
	require.NoError(t, tx.Rollback(t.Context()))
	results, err = s.RenewAll(t.Context(), all)
	require.NoError(t, err)
	require.NoError(t, results[1].Err)
}

func TestManyAreRenewedInOneTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	var all []lease.RenewRequest
	for i := range 50 {
		all = append(all, lease.RenewRequest{Claim: acquire(t, s, fmt.Sprint(i), "h").Claim, TTL: 2 * ttl})
	}
	_, err := s.RenewAll(t.Context(), all)
	require.NoError(t, err)
	assert.Equal(t, 1, one[int](j, "SELECT count(DISTINCT xmin::text) FROM pglatch_lease.locks"))
}

func TestPostgresConformsToTheContract(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			if mode != "exec" {
				pgtest.Long(t)
			}
			var databases sync.Map // of the stores
			openOn := func(t *testing.T, dsn string) lease.Store {
				t.Helper()
				s := newStore(t, dsn+"&default_query_exec_mode="+mode)
				databases.Store(lease.Store(s), dsn)
				return s
			}
			leasetest.Run(t, leasetest.Harness{
				New: func(t *testing.T) lease.Store {
					t.Helper()
					return openOn(t, pgtest.DSN(t))
				},
				Reopen: func(t *testing.T, store lease.Store) lease.Store {
					t.Helper()
					dsn, ok := databases.Load(store)
					require.True(t, ok)
					newJudge(t, dsn.(string)).exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
					store.(*postgres.Store).Close()
					return openOn(t, dsn.(string))
				},
			})
		})
	}
}

// The operations of a batch share transactions.
func TestABatchOfALockServerIsFewTransactions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	_, h := servetest.Serve(t, leaseserver.Config{Store: newStore(t, dsn), MaxBody: 1 << 20})
	j := newJudge(t, dsn)
	const n = 500
	send := func(operations []string) (results []struct {
		Status int
		Lease  struct {
			ID    string `json:"lease_id"`
			Token uint64 `json:"fencing_token"`
		}
		Problem map[string]any
	},
	) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/v1/batch", strings.NewReader(`{"operations":[`+strings.Join(operations, ",")+`]}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		response, err := h.Client().Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, 200, response.StatusCode, "%s", data)
		var body struct{ Results json.RawMessage }
		require.NoError(t, json.Unmarshal(data, &body))
		require.NoError(t, json.Unmarshal(body.Results, &results))
		require.Len(t, results, len(operations))
		return results
	}
	transactions := func() int {
		return one[int](j, `SELECT count(DISTINCT xmin::text) FROM pglatch_lease.locks WHERE name LIKE 'job %'`)
	}
	var acquires, renewals, releases []string
	for i := range n {
		acquires = append(acquires, fmt.Sprintf(`{"acquire":{"lock":"job %d","owner_id":"a","ttl_ms":60000,"idempotency_key":"k"}}`, i))
	}
	for i, r := range send(acquires) {
		require.Equal(t, 200, r.Status, r.Problem)
		claim := fmt.Sprintf(`{"lock":"job %d","owner_id":"a","lease_id":%q,"fencing_token":%d`, i, r.Lease.ID, r.Lease.Token)
		renewals, releases = append(renewals, `{"renew":`+claim+`,"ttl_ms":90000}}`), append(releases, `{"release":`+claim+`}}`)
	}
	assert.Less(t, transactions(), n, "how many share one depends on how busy the machine is")
	for _, r := range send(renewals) {
		require.Equal(t, 200, r.Status, r.Problem)
	}
	assert.Equal(t, 1, transactions(), "they are one statement")
	for _, r := range send(releases) {
		require.Equal(t, 200, r.Status, r.Problem)
	}
	assert.Less(t, transactions(), n, "how many share one depends on how busy the machine is")
}
