package cronlock_test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/adapters/cronlock"
	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

// node is the role of a process with a cron.
const node = "node"

const (
	nodes  = 3
	period = time.Second
	ticks  = 8
	apart  = time.Second // the clock of each node from that of the next: two seconds from first to last
	ttl    = 8 * time.Second
)

type nodeConfig struct {
	DSN     string
	Name    string
	Ahead   time.Duration // this node's clock
	Control bool          // a lock around the job
	Die     time.Time     // kill -9 in the middle of this tick's first run
	Last    time.Time     // the node stops behind this tick
}

// now is the time on the node's clock.
func (c nodeConfig) now() time.Time { return time.Now().UTC().Add(c.Ahead) }

// A shifted schedule is what cron has on a clock that goes ahead.
type shifted struct {
	cron.Schedule

	ahead time.Duration
}

func (s shifted) Next(t time.Time) time.Time { return s.Schedule.Next(t.Add(s.ahead)).Add(-s.ahead) }

func everySecond() cron.Schedule {
	s, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("* * * * * *")
	if err != nil {
		panic(err)
	}
	return s
}

func runNode(ctx context.Context, c nodeConfig) error {
	pool, err := pgxpool.New(ctx, c.DSN)
	if err != nil {
		return err
	}
	wrapper, err := c.wrapper(ctx, pool)
	if err != nil {
		return err
	}
	work := cronlock.Func(func(ctx context.Context) error {
		tick, token := c.now().Truncate(period), uint64(0)
		if claim, ok := once.ClaimOf(ctx); ok {
			tick, token = claim.Tick, claim.Token
		}
		if tick.Equal(c.Die) && token == 1 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		_, err := pool.Exec(ctx, "INSERT INTO runs VALUES ($1, $2, $3)", tick, c.Name, int64(token))
		return err
	})
	scheduler := cron.New(cron.WithLocation(time.UTC))
	scheduler.Schedule(shifted{everySecond(), c.Ahead}, cron.NewChain(wrapper).Then(work))
	scheduler.Start()
	<-time.After(c.Last.Add(period / 2).Sub(c.now()))
	<-scheduler.Stop().Done()
	return nil
}

func (c nodeConfig) wrapper(ctx context.Context, pool *pgxpool.Pool) (cron.JobWrapper, error) {
	if c.Control {
		locks, err := advisory.Open(ctx, advisory.Config{DSN: c.DSN})
		if err != nil {
			return nil, err
		}
		key := namespace.Pair(1, 1)
		return func(job cron.Job) cron.Job {
			return cron.FuncJob(func() {
				if lock, err := locks.TryAcquire(ctx, key); err == nil {
					defer func() { _ = lock.Release() }()
					job.Run()
				}
			})
		}, nil
	}
	store, err := postgres.New(postgres.Config{Pool: pool})
	if err != nil {
		return nil, err
	}
	runner, err := once.New(once.Config{Store: store, Node: c.Name, TTL: ttl, Wait: time.Minute})
	if err != nil {
		return nil, err
	}
	return cronlock.Once(cronlock.Config{
		Runner: runner, Job: "report", Schedule: everySecond(), Logger: cron.DiscardLogger, Now: c.now,
	})
}

// A result is what nodes did for the ticks from first on.
type result struct {
	runs  map[time.Time]int // by tick
	total int
	died  int
	first time.Time
	pool  *pgxpool.Pool
	store *postgres.Store
}

// cluster has nodes run, as processes, until they are behind the last tick.
func cluster(t *testing.T, c nodeConfig) result {
	t.Helper()
	c.DSN = pgtest.DSN(t)
	pool := dbtest.Pool(t, c.DSN)
	store, err := postgres.New(postgres.Config{Pool: pool})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))
	_, err = pool.Exec(t.Context(), "CREATE TABLE runs (tick timestamptz, node text, token bigint)")
	require.NoError(t, err)
	r := result{runs: make(map[time.Time]int), pool: pool, store: store, first: time.Now().UTC().Truncate(period).Add(4 * period)}
	c.Last = r.first.Add((ticks - 1) * period)
	if !c.Control {
		c.Die = r.first.Add(ticks / 2 * period)
	}
	var all []*proctest.Process
	for i := range nodes {
		c.Name, c.Ahead = string(rune('a'+i)), time.Duration(i)*apart
		all = append(all, proctest.Start(t, proctest.As(t, node, c)))
	}
	for _, p := range all {
		if p.Wait() != 0 {
			r.died++
		}
	}
	rows, err := pool.Query(t.Context(), "SELECT tick FROM runs WHERE tick BETWEEN $1 AND $2", r.first, c.Last)
	require.NoError(t, err)
	var tick time.Time
	for rows.Next() {
		require.NoError(t, rows.Scan(&tick))
		r.runs[tick.UTC()]++
		r.total++
	}
	require.NoError(t, rows.Err())
	return r
}

func TestEachTickRunsOnceThoughClocksDifferAndANodeIsKilled(t *testing.T) {
	t.Parallel()
	r := cluster(t, nodeConfig{})
	for again := 0; again < 3 && r.died == 0; again++ {
		t.Log("once more: no node was in time for the tick in which one dies")
		r = cluster(t, nodeConfig{})
	}
	// What no node fired for in time, on a machine that stood still for seconds, is what Missed names.
	runner := newRunner(t, r.store, nil)
	missed, err := runner.Missed(t.Context(), "report", r.first, everySecond().Next)
	require.NoError(t, err)
	for _, tick := range missed {
		if tick.Sub(r.first) < ticks*period {
			t.Logf("no node was in time for %v", tick)
			result, err := runner.Do(t.Context(), "report", tick, func(ctx context.Context) error {
				claim, _ := once.ClaimOf(ctx)
				_, err := r.pool.Exec(ctx, "INSERT INTO runs VALUES ($1, 'late', $2)", tick, int64(claim.Token))
				return err
			})
			require.NoError(t, err)
			require.True(t, result.Did)
			r.runs[tick]++
		}
	}
	for i := range ticks {
		assert.Equal(t, 1, r.runs[r.first.Add(time.Duration(i)*period)], i)
	}
	assert.Equal(t, 1, r.died, "in the middle of a run")
	var token int64
	require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT token FROM runs WHERE tick = $1", r.first.Add(ticks/2*period)).Scan(&token))
	assert.EqualValues(t, 2, token, "who repeated the run has a higher token")
}

// The control: a lock around the job.
func TestALockAroundTheJobRunsATickMoreThanOnce(t *testing.T) {
	t.Parallel()
	r := cluster(t, nodeConfig{Control: true})
	t.Logf("%d runs of %d ticks", r.total, len(r.runs))
	assert.Greater(t, r.total, len(r.runs))
}

func TestMain(m *testing.M) {
	proctest.Play(node, runNode)
	pgtest.Main(m)
}
