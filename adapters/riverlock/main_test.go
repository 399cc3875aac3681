package riverlock_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/riverlock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = await.Patience

var agents = namespace.Must(1, "agent")

// syncArgs are of a job on one agent.
type syncArgs struct {
	Agent int64  `json:"agent"`
	What  string `json:"what"`
}

func (syncArgs) Kind() string { return "sync" }

func keyOfAgent(a syncArgs) namespace.Key { return agents.ID(a.Agent) }

// database returns the DSN of a database with River's tables.
func database(tb testing.TB) string {
	tb.Helper()
	dsn := pgtest.DSN(tb)
	migrator, err := rivermigrate.New(riverpgxv5.New(dbtest.Pool(tb, dsn)), nil)
	require.NoError(tb, err)
	_, err = migrator.Migrate(tb.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(tb, err)
	return dsn
}

// openLocker is another process, as far as PostgreSQL is concerned.
func openLocker(tb testing.TB, dsn string) *advisory.Locker {
	tb.Helper()
	locker, err := advisory.Open(tb.Context(), advisory.Config{DSN: dsn, MaxConns: 20})
	require.NoError(tb, err)
	tb.Cleanup(locker.Close)
	return locker
}

// A node is one process that works jobs, with connections of its own.
type node struct {
	*river.Client[pgx.Tx]
	pool   *pgxpool.Pool
	locker *advisory.Locker
	locks  *riverlock.Middleware
	events <-chan *river.Event
}

type work = func(ctx context.Context, job *river.Job[syncArgs]) error

// startNode starts a client that works the given queues. A nil config is none of ours.
func startNode(tb testing.TB, dsn string, config *riverlock.Config, work work, queues ...string) *node {
	tb.Helper()
	n := &node{pool: dbtest.Pool(tb, dsn)}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(work))
	settings := &river.Config{
		Workers: workers, Queues: map[string]river.QueueConfig{}, RetryPolicy: atOnce{}, MaxAttempts: 3,
		TestOnly: true,
	}
	for _, queue := range queues {
		settings.Queues[queue] = river.QueueConfig{MaxWorkers: 10}
	}
	if config != nil {
		n.locker = openLocker(tb, dsn)
		c := *config
		c.Key = riverlock.Args(keyOfAgent)
		locks, err := riverlock.New(n.locker, n.pool, c)
		require.NoError(tb, err)
		n.locks = locks
		settings.Middleware = []rivertype.Middleware{locks}
		tb.Cleanup(locks.Close)
	}
	client, err := river.NewClient(riverpgxv5.New(n.pool), settings)
	require.NoError(tb, err)
	n.Client = client
	n.events, _ = client.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobSnoozed)
	require.NoError(tb, client.Start(context.WithoutCancel(tb.Context())))
	tb.Cleanup(n.stop)
	return n
}

// stop ends the node, as a process that goes away in good order.
func (n *node) stop() {
	_ = n.StopAndCancel(context.Background())
	if n.locks != nil {
		n.locks.Close()
	}
}

func (n *node) insert(tb testing.TB, args syncArgs, opts *river.InsertOpts) *rivertype.JobRow {
	tb.Helper()
	result, err := n.Insert(tb.Context(), args, opts)
	require.NoError(tb, err)
	require.False(tb, result.UniqueSkippedAsDuplicate)
	return result.Job
}

// await returns the next event of that kind about the job.
func (n *node) await(tb testing.TB, kind river.EventKind, id int64) *river.Event {
	tb.Helper()
	timeout := time.After(patience)
	for {
		select {
		case event := <-n.events:
			if event.Kind == kind && event.Job.ID == id {
				return event
			}
		case <-timeout:
			require.FailNow(tb, "the event did not come", "%s of job %d", kind, id)
		}
	}
}

// atOnce retries a job that failed without a pause.
type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// A gauge counts who is inside of an agent's work.
type gauge struct {
	mu     sync.Mutex
	inside map[int64]int
	most   map[int64]int
	met    chan struct{} // closed when two are
}

func newGauge() *gauge {
	return &gauge{inside: map[int64]int{}, most: map[int64]int{}, met: make(chan struct{})}
}

func (g *gauge) enter(agent int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside[agent]++
	if g.inside[agent] == 2 && g.most[agent] < 2 && g.count() < 2 {
		close(g.met)
	}
	g.most[agent] = max(g.most[agent], g.inside[agent])
}

func (g *gauge) leave(agent int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside[agent]--
}

// count returns the greatest number of any agent.
func (g *gauge) count() int {
	most := 0
	for n := range maps.Values(g.most) {
		most = max(most, n)
	}
	return most
}
