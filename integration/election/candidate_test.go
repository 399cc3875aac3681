//go:build integration

package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// A candidate is a child that writes guarded transactions while it leads.
type candidate struct {
	*electiontest.Child
	writer ledgertest.Writer
}

// key is the election's in the ledger.
const key = "election"

// standOnPostgres is the role with the settings dsn, of the election through a proxy,
// and work, of the guarded transactions straight to the server.
func standOnPostgres(ctx context.Context, child *electiontest.Child) error {
	config, err := pgxpool.ParseConfig(child.Settings["work"])
	if err != nil {
		return err
	}
	config.MaxConns = 4
	work, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer work.Close()
	backend, err := postgres.New(postgres.Config{DSN: child.Settings["dsn"], Key: election, CreateTable: true})
	if err != nil {
		return err
	}
	c := &candidate{child, ledgertest.Writer{Pool: work, Node: fmt.Sprint(child.Node), Slow: 5 * time.Millisecond, Trace: child.Trace}}
	if !c.Reckless {
		c.writer.InTx = func(ctx context.Context, pool *pgxpool.Pool, write func(context.Context, pgx.Tx) error) error {
			return postgres.InTx(ctx, pool, write)
		}
	}
	err = c.Stand(ctx, backend, c.lead)
	c.writer.Close(c.Say)
	return err
}

// lead writes for as long as the node leads.
func (c *candidate) lead(leading context.Context) {
	term := leader.TermOfContext(leading)
	if c.Stubborn {
		c.writer.Defy(leading, key, term, 5*time.Millisecond, func() error { return c.ignoreGuard(leading, term) })
	}
	ctx := c.Outlasting(leading)
	// From here on no older term may write, not only from the first write on.
	_ = c.writer.Announce(ctx, key, term)
	for ctx.Err() == nil {
		_ = c.writer.Write(ctx, key, term)
		electiontest.Pause(ctx, rand.N(5*time.Millisecond))
	}
}

// ignoreGuard writes whatever the guard says.
func (c *candidate) ignoreGuard(ended context.Context, term leader.Term) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx, err := c.writer.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if !c.Reckless {
		if err := postgres.Guard(ended, tx); err == nil || !errors.Is(err, leader.ErrNotLeader) && tx.Conn().PgConn().TxStatus() == 'T' {
			c.Say("failed: the guard of an ended term says", err)
		}
	}
	_ = c.writer.Act(ctx, tx, key, term)
	return tx.Commit(ctx)
}

// A member is an elector in this process.
type member struct {
	*leader.Elector
	t *testing.T

	mu    sync.Mutex
	story []string // "acquired 1.1", and so on
	works []leader.Term
}

// join starts a member. Its work is called with the leader's context, and waits for
// its end if it is nil.
func join(t *testing.T, identity string, backend postgres.Config, config leader.Config, work func(context.Context)) *member {
	t.Helper()
	m := &member{t: t}
	note := func(kind string) func(leader.Term) { return func(term leader.Term) { m.note(kind, term) } }
	config.Callbacks = leader.Callbacks{
		OnAcquired: note("acquired"), OnRecovered: note("recovered"), OnReleased: note("released"),
		OnLost: func(term leader.Term, _ error) { m.note("lost", term) },
	}
	e, err := newElector(identity, backend, config)
	require.NoError(t, err)
	m.Elector = e
	require.NoError(t, e.Start(context.Background()))
	var running sync.WaitGroup
	running.Go(func() {
		assert.NoError(t, e.Run(context.Background(), func(ctx context.Context) error {
			m.mu.Lock()
			m.works = append(m.works, leader.TermOfContext(ctx))
			m.mu.Unlock()
			if work != nil {
				work(ctx)
			}
			<-ctx.Done()
			return nil
		}))
	})
	t.Cleanup(func() {
		assert.NoError(t, e.Shutdown(context.Background()))
		running.Wait()
	})
	return m
}

func (m *member) note(kind string, term leader.Term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.story = append(m.story, fmt.Sprintf("%s %v", kind, term))
}

func (m *member) told() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.story)
}

// requireStory waits for events, which must be all that were told.
func (m *member) requireStory(events ...string) {
	m.t.Helper()
	await.Until(m.t, patience, func() bool { return len(m.told()) >= len(events) }, "too few events")
	require.Equal(m.t, events, m.told(), "it is a %v", m.State())
}

// requireWorks waits for calls of the work, which must be all.
func (m *member) requireWorks(terms ...uint64) {
	m.t.Helper()
	var want []leader.Term
	for _, n := range terms {
		want = append(want, leader.Term{Era: 1, N: n})
	}
	until(m.t, "work", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.works) >= len(want)
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Equal(m.t, want, m.works)
}

// The times of all candidates. What has no need of a short lease has a calm one,
// which no pause of a busy machine ends.
const (
	calm     = 10 * time.Second
	ttl      = electiontest.Lease
	retry    = electiontest.Retry
	patience = await.Patience

	// An attempt, by one that polls because its last attempt failed.
	attempt = electiontest.RetryAtMost + electiontest.RenewTimeout
)

var election = namespace.Pair(9, 1)

func TestMain(m *testing.M) {
	electiontest.Main(map[string]electiontest.Role{
		"postgres": standOnPostgres, "file": standOnFile, "hammer": hammerFile,
		"lock server": serveLocks, "lock client": standOnLockServer, "lease/postgres": standOnPostgresLease,
	})
	pgtest.Main(m)
}

// newElector fills in what all electors have in common.
func newElector(identity string, backend postgres.Config, config leader.Config) (*leader.Elector, error) {
	backend.Key, backend.CreateTable = election, true
	b, err := postgres.New(backend)
	if err != nil {
		return nil, err
	}
	config.Name, config.Backend, config.Identity = "election", b, identity
	config.LeaseDuration, config.Retry = cmp.Or(config.LeaseDuration, calm), backoff.Fixed{Interval: retry}
	return leader.New(config)
}

// until waits until a condition holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	await.Until(t, patience, condition, what)
}

// receive waits for one value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	return await.Receive(t, patience, from, what)
}

const createIndex = "CREATE INDEX CONCURRENTLY items_by_name ON items (name)"

func TestAnIndexIsCreatedConcurrentlyWhileFollowersWait(t *testing.T) {
	t.Parallel()
	backend := postgres.Config{DSN: pgtest.DSN(t)}
	conn := newItems(t, backend.DSN)
	join(t, "leader", backend, leader.Config{}, nil).requireStory("acquired 1.1")
	for i := range 3 {
		join(t, fmt.Sprintf("follower-%d", i), backend, leader.Config{}, nil)
	}
	for i := range 3 {
		requireWaiting(t, conn, 3)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		began := time.Now()
		_, err := conn.Exec(ctx, createIndex)
		require.NoError(t, err, "with %d indexes before", i)
		t.Logf("created in %v", time.Since(began))
		require.Equal(t, []bool{true}, indexes(t, conn))
		_, err = conn.Exec(ctx, "DROP INDEX CONCURRENTLY items_by_name")
		require.NoError(t, err)
	}
	requireWaiting(t, conn, 3)
}

// The control: a wait without steps holds the index up for ever.
func TestAnIndexIsNotCreatedWhileAPlainWaiterWaits(t *testing.T) {
	t.Parallel()
	backend := postgres.Config{DSN: pgtest.DSN(t)}
	conn := newItems(t, backend.DSN)
	join(t, "leader", backend, leader.Config{}, nil).requireStory("acquired 1.1")
	waiter := pgtest.Connect(t, backend.DSN)
	k1, k2, _ := election.Tag().Pair()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() { _, _ = waiter.Exec(ctx, "SELECT pg_advisory_lock($1, $2)", k1, k2) })
	defer waiting.Wait()
	defer cancel()
	requireWaiting(t, conn, 1)
	_, err := conn.Exec(t.Context(), "SET statement_timeout = '5s'")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), createIndex)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "57014", refused.Code)
	assert.Equal(t, []bool{false}, indexes(t, conn))
}

func newItems(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "CREATE TABLE items AS SELECT n AS id, n::text AS name FROM generate_series(1, 1000) AS n")
	require.NoError(t, err)
	return conn
}

// indexes tells which indexes of items are valid.
func indexes(t *testing.T, conn *pgx.Conn) []bool {
	t.Helper()
	rows, _ := conn.Query(t.Context(), "SELECT indisvalid FROM pg_index WHERE indrelid = 'items'::regclass") // CollectRows returns the error
	valid, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	require.NoError(t, err)
	return valid
}

// requireWaiting waits until so many wait for the election lock.
func requireWaiting(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	until(t, "followers wait", func() bool {
		var waiting int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&waiting)
		return err == nil && waiting == n
	})
}
