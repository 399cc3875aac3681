package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards"
	shardspostgres "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// shardNodes is the number of nodes.
const shardNodes = 3

// owning is the role of a process that is one of the nodes.
const owning = "owner"

type ownerConfig struct{ System, DSN string }

// BenchmarkShards measures the ownership of shards spread over three nodes, beside the usual
// alternatives. Times are the defaults: a lease of 15 s.
func BenchmarkShards(b *testing.B) {
	for _, s := range spreaders {
		b.Run(s.title(), func(b *testing.B) {
			b.Run("settle-idle-leave", func(b *testing.B) {
				for b.Loop() {
					s.life(b)
				}
			})
			b.Run("kill-9", func(b *testing.B) {
				for b.Loop() {
					s.killed(b)
				}
			})
		})
	}
	b.Run("heap", shardHeap)
}

// A spreader is a system in which nodes own shards.
type spreader struct {
	name   string
	shards int
	keeps  bool // an owner keeps its shards, so that the first node has all
	setup  string

	// run takes part until ctx ends, and calls work for each owned shard.
	run func(ctx context.Context, dsn string, shards int, work func(ctx context.Context, shard int)) error
}

func (s spreader) title() string { return fmt.Sprintf("%s/shards=%d", s.name, s.shards) }

// A board records the shards' ownership in this process.
type board struct {
	mu      sync.Mutex
	owned   int
	changed chan struct{}
	over    map[int]time.Time // when the work on a shard last returned
	gaps    durations         // from then until its next work began
}

func newBoard() *board { return &board{changed: make(chan struct{}, 1), over: make(map[int]time.Time)} }

func (o *board) work(ctx context.Context, shard int) {
	o.mu.Lock()
	if over, ok := o.over[shard]; ok {
		o.gaps.add(time.Since(over))
	}
	o.countLocked(1)
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.over[shard] = time.Now()
	o.countLocked(-1)
	o.mu.Unlock()
}

func (o *board) countLocked(n int) {
	o.owned += n
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *board) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.owned
}

// await waits until this many shards are owned, including those of another process.
func (o *board) await(b *testing.B, n int, others func() int) {
	b.Helper()
	timeout := time.After(5 * time.Minute)
	for o.count()+others() < n {
		select {
		case <-o.changed:
		case <-time.After(10 * time.Millisecond): // polls the other process
		case <-timeout:
			require.Fail(b, "not all shards are owned", "%d and %d of %d", o.count(), others(), n)
		}
	}
}

func nobody() int { return 0 }

func (s spreader) server(b *testing.B) *pgserver.Server {
	b.Helper()
	server := pgtest.StartServer(b, pgserver.Options{Settings: map[string]string{
		"max_locks_per_transaction": "256", "max_connections": "400",
	}})
	if s.setup != "" {
		_, err := pgtest.Connect(b, server.DSN("")).Exec(b.Context(), strings.ReplaceAll(s.setup, "$N", fmt.Sprint(s.shards)))
		require.NoError(b, err)
	}
	return server
}

// join starts a node. leave stops it cleanly.
func (s spreader) join(b *testing.B, dsn string, work func(context.Context, int)) (leave func()) {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx, dsn, s.shards, work) }()
	return sync.OnceFunc(func() {
		stop()
		require.NoError(b, <-done)
	})
}

// life measures three things: three nodes that start at once, until all shards are owned; the
// idle cost of the nodes; and a node that leaves.
func (s spreader) life(b *testing.B) {
	b.Helper()
	server := s.server(b)
	conn, o := pgtest.Connect(b, server.DSN("")), newBoard()
	began := time.Now()
	var leaves []func()
	var parts [shardNodes]atomic.Int64
	for i := range shardNodes {
		leaves = append(leaves, s.join(b, server.DSN(""), func(ctx context.Context, shard int) {
			parts[i].Add(1)
			o.work(ctx, shard)
			parts[i].Add(-1)
		}))
	}
	o.await(b, s.shards, nobody)
	b.ReportMetric(time.Since(began).Seconds(), "settle-s")
	s.idle(b, server, conn)
	<-time.After(10 * time.Second) // time for each session to read its settings
	least, most := int64(s.shards), int64(0)
	for i := range parts {
		least, most = min(least, parts[i].Load()), max(most, parts[i].Load())
	}
	b.ReportMetric(float64(least), "least-owned")
	b.ReportMetric(float64(most), "most-owned")

	o.mu.Lock()
	o.gaps = nil
	o.mu.Unlock()
	left := time.Now()
	leaves[0]()
	b.ReportMetric(time.Since(left).Seconds(), "leave-s")
	o.await(b, s.shards, nobody)
	o.mu.Lock()
	o.gaps.report(b)
	o.mu.Unlock()
	for _, leave := range leaves {
		leave()
	}
}

// idle reports the cost per node of half a minute without events.
func (s spreader) idle(b *testing.B, server *pgserver.Server, conn *pgx.Conn) {
	b.Helper()
	for _, sql := range []string{"ALTER SYSTEM SET log_statement = 'all'", "SELECT pg_reload_conf()"} {
		_, err := conn.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
	defer func() { // so that logging does not slow down the measurements after it
		_, err := conn.Exec(b.Context(), "ALTER SYSTEM RESET log_statement")
		require.NoError(b, err)
		_, err = conn.Exec(b.Context(), "SELECT pg_reload_conf()")
		require.NoError(b, err)
	}()
	<-time.After(10 * time.Second) // time to even out, and for each session to read its settings
	const written = "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables"
	ask := func(sql string) (n float64) {
		require.NoError(b, conn.QueryRow(b.Context(), sql).Scan(&n))
		return n
	}
	sessions := ask("SELECT count(*)::float8 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
	rows := ask(written)
	b.ReportMetric(idleStatements(b, server, "")/shardNodes, "statements/min/node")
	b.ReportMetric((ask(written)-rows)*perMinute/shardNodes, "rows/min/node")
	b.ReportMetric(sessions/shardNodes, "connections/node")
}

// killed measures from the kill -9 of one of three nodes until all shards are owned.
func (s spreader) killed(b *testing.B) {
	b.Helper()
	server, o := s.server(b), newBoard()
	child, owns := s.child(b, server.DSN(""))
	if s.keeps {
		o.await(b, s.shards, owns)
	}
	for range shardNodes - 1 {
		defer s.join(b, server.DSN(""), o.work)()
	}
	o.await(b, s.shards, owns)
	<-time.After(3 * time.Second) // time to even out
	orphans := owns()
	struck := time.Now()
	child.Signal(syscall.SIGKILL)
	o.await(b, s.shards, nobody)
	b.ReportMetric(time.Since(struck).Seconds(), "kill-s")
	b.ReportMetric(float64(orphans), "orphans")
	b.ReportMetric(0, "ns/op")
}

// child starts a node in a separate process. owns returns how many shards it owns.
func (s spreader) child(b *testing.B, dsn string) (child *proctest.Process, owns func() int) {
	b.Helper()
	child = proctest.Start(b, proctest.As(b, owning, ownerConfig{s.title(), dsn}))
	var last atomic.Int64
	go func() {
		for line := range child.Lines() {
			var n int64
			if _, err := fmt.Sscan(line, &n); err != nil {
				fmt.Println("a child says:", line)
			}
			last.Store(n)
		}
	}()
	return child, func() int { return int(last.Load()) }
}

// ownShards is the child's main function.
func ownShards(ctx context.Context, c ownerConfig) error {
	i := slices.IndexFunc(spreaders, func(s spreader) bool { return s.title() == c.System })
	s, o := spreaders[i], newBoard()
	go func() {
		for range o.changed {
			fmt.Println(o.count())
			<-time.After(10 * time.Millisecond)
		}
	}()
	return s.run(ctx, c.DSN, s.shards, o.work)
}

// shardHeap measures a node's heap per owned shard, without the stacks of the work.
func shardHeap(b *testing.B) {
	s := spreaders[0]
	for b.Loop() {
		server, o := s.server(b), newBoard()
		before := heapNow()
		leave := s.join(b, server.DSN(""), func(ctx context.Context, _ int) {
			o.mu.Lock()
			o.countLocked(1)
			o.mu.Unlock()
			<-ctx.Done()
		})
		o.await(b, s.shards, nobody)
		b.ReportMetric(float64(heapNow()-before)/float64(s.shards), "heap-B/shard")
		leave()
	}
	b.ReportMetric(0, "ns/op")
}

func heapNow() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// spreaders are the measured systems. An Elector has its own connection, so there are fewer of them.
var spreaders = []spreader{
	{name: "pglatch", shards: 10_000, run: runShards},
	{name: "pglatch", shards: 300, run: runShards},
	{name: "peer=elector-per-shard", shards: 60, keeps: true, run: runElectors},
	{name: "peer=skip-locked", shards: 10_000, setup: tableSQL, run: runTable},
}

var tenants = namespace.Must(9, "tenant")

func runShards(ctx context.Context, dsn string, n int, work func(context.Context, int)) error {
	backend, err := shardspostgres.New(shardspostgres.Config{DSN: dsn, Namespace: tenants, CreateTable: true})
	if err != nil {
		return err
	}
	node, err := shards.New(shards.Config{Name: "bench", Backend: backend, Count: n})
	if err != nil {
		return err
	}
	return node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
		shard, err := strconv.Atoi(s.Name)
		if err == nil {
			work(ctx, shard)
		}
		return err
	})
}

// runElectors runs an election for each shard.
func runElectors(ctx context.Context, dsn string, n int, work func(context.Context, int)) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for shard := range n {
		all.Go(func() {
			backend, err := postgres.New(postgres.Config{DSN: dsn, Key: namespace.Pair(8, int32(shard)), CreateTable: true})
			if err != nil {
				errs[shard] = err
				return
			}
			e, err := leader.New(leader.Config{Name: fmt.Sprint("bench-", shard), Backend: backend})
			if err != nil {
				errs[shard] = err
				return
			}
			errs[shard] = e.Run(ctx, func(ctx context.Context) error { work(ctx, shard); return nil })
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// The usual ownership table: each owner renews its rows. It takes rows without an owner, and
// rows whose owner has not renewed them for a lease, up to its fair share.
const (
	tableSQL = `
CREATE TABLE ownership (shard int PRIMARY KEY, owner text, seen timestamptz);
CREATE INDEX ON ownership (owner);
CREATE TABLE node (name text PRIMARY KEY, seen timestamptz);
INSERT INTO ownership SELECT n FROM generate_series(0, $N - 1) AS n;
`
	tablePoll  = time.Second
	tableBeat  = 5 * time.Second
	tableLease = 15 * time.Second

	tableJoinSQL  = `INSERT INTO node VALUES ($1, now()) ON CONFLICT (name) DO UPDATE SET seen = now()`
	tableFairSQL  = `SELECT ceil($1::float8 / greatest(count(*), 1))::int FROM node WHERE seen > now() - $2::interval`
	tableClaimSQL = `UPDATE ownership SET owner = $1, seen = now() WHERE shard IN (SELECT shard FROM ownership
		WHERE owner IS NULL OR seen < now() - $2::interval LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING shard`
	tableBeatSQL  = `UPDATE ownership SET seen = now() WHERE owner = $1`
	tableLeaveSQL = `WITH gone AS (DELETE FROM node WHERE name = $1) UPDATE ownership SET owner = NULL WHERE owner = $1`
)

// runTable does not give up excess rows: a late node gets only free ones.
func runTable(ctx context.Context, dsn string, n int, work func(context.Context, int)) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	self := fmt.Sprintf("node-%d-%p", os.Getpid(), pool)
	var all sync.WaitGroup
	if _, err := pool.Exec(ctx, tableJoinSQL, self); err != nil {
		return err
	}
	owned := 0
	poll, beat := time.NewTicker(tablePoll), time.NewTicker(tableBeat)
	defer poll.Stop()
	defer beat.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-beat.C:
			for _, sql := range []string{tableBeatSQL, tableJoinSQL} {
				if _, err := pool.Exec(context.WithoutCancel(ctx), sql, self); err != nil {
					return err
				}
			}
			continue
		case <-poll.C:
		}
		claimed, err := claimRows(context.WithoutCancel(ctx), pool, self, n, owned)
		if err != nil {
			return err
		}
		owned += len(claimed)
		for _, shard := range claimed {
			all.Go(func() { work(ctx, shard) })
		}
	}
	all.Wait()
	_, err = pool.Exec(context.WithoutCancel(ctx), tableLeaveSQL, self)
	return err
}

func claimRows(ctx context.Context, pool *pgxpool.Pool, self string, n, owned int) (claimed []int, err error) {
	var fair int
	if err := pool.QueryRow(ctx, tableFairSQL, n, tableLease).Scan(&fair); err != nil || fair <= owned {
		return nil, err
	}
	rows, err := pool.Query(ctx, tableClaimSQL, self, tableLease, fair-owned)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var shard int
		if err := rows.Scan(&shard); err != nil {
			return nil, err
		}
		claimed = append(claimed, shard)
	}
	return claimed, rows.Err()
}
