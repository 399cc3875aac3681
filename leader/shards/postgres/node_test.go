package postgres_test

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// A witness is what is known of a node's shards.
type witness struct {
	mu       sync.Mutex
	owned    map[string]leader.Term
	terms    map[string]leader.Term // the last of each
	lost     map[string]bool
	problems []string
}

func (w *witness) callbacks() shards.Callbacks {
	return shards.Callbacks{
		OnAcquired: func(s shards.Shard) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if s.Term.Compare(w.terms[s.Name]) <= 0 {
				w.problems = append(w.problems, "a term of "+s.Name+" does not rise")
			}
			w.owned[s.Name], w.terms[s.Name] = s.Term, s.Term
		},
		OnReleased: func(s shards.Shard) { w.mu.Lock(); defer w.mu.Unlock(); delete(w.owned, s.Name) },
		OnLost: func(s shards.Shard, _ error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.owned, s.Name)
			w.lost[s.Name] = true
		},
	}
}

func (w *witness) counts() (owned, lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.owned), len(w.lost)
}

// run runs a node until the end of the test.
func run(t *testing.T, b driver.Backend, n int, change func(*shards.Config)) (*shards.Node, *witness) {
	t.Helper()
	w := &witness{owned: map[string]leader.Term{}, terms: map[string]leader.Term{}, lost: map[string]bool{}}
	config := shards.Config{Name: "tenants", Backend: b, Count: n, LeaseDuration: 6 * time.Second, Callbacks: w.callbacks()}
	if change != nil {
		change(&config)
	}
	node, err := shards.New(config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		assert.Empty(t, w.problems)
	})
	return node, w
}

func eventually(t *testing.T, condition func() bool, message string) {
	t.Helper()
	await.Until(t, 3*patience, condition, message)
}

func TestTheEndOfOneConnectionCostsHalfOfTheShardsAndNoMore(t *testing.T) {
	t.Parallel()
	const n = 40
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	// No pause of the machine ends the other connection, and both are there when the node begins to claim.
	_, w := run(t, newBackend(t, dsn, nil), n, func(c *shards.Config) { c.LeaseDuration = 30 * time.Second })
	eventually(t, func() bool { owned, _ := w.counts(); return owned == n }, "all are owned")
	w.mu.Lock()
	before := maps.Clone(w.owned)
	w.mu.Unlock()
	pid := dbtest.Ask[int32](judge, `SELECT min(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	rows, err := judge.Pool.Query(t.Context(), `SELECT objid::int8 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND pid = $1`, pid)
	require.NoError(t, err)
	carried := map[string]bool{}
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		carried[strconv.FormatInt(id, 10)] = true
	}
	require.NoError(t, rows.Err())
	require.Len(t, carried, n/2, "half of them")

	judge.Terminate(uint32(pid))
	eventually(t, func() bool { owned, lost := w.counts(); return owned == n && lost == n/2 }, "the half is lost, told, and owned again")
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.Equal(t, carried, w.lost)
	for name, term := range before {
		if !carried[name] {
			assert.Equal(t, term, w.owned[name], "%s went on", name)
		}
	}
}

func TestShardsAreOwnedAgainAfterARestartOfTheServer(t *testing.T) {
	t.Parallel()
	const n = 12
	server := pgtest.StartServer(t, pgserver.Options{})
	_, a := run(t, newBackend(t, server.DSN(""), nil), n, nil)
	_, b := run(t, newBackend(t, server.DSN(""), nil), n, nil)
	all := func() bool {
		first, _ := a.counts()
		second, _ := b.counts()
		return first == n/2 && second == n/2
	}
	eventually(t, all, "each has half")
	for _, how := range []pgserver.StopMode{pgserver.Fast, pgserver.Immediate} {
		a.forget()
		b.forget()
		require.NoError(t, server.Restart(t.Context(), how))
		eventually(t, func() bool { return len(a.everLost(b)) == n && all() }, "all were lost and are owned again")
	}
}

// everLost returns what either node has lost: one can lose what was the other's at first.
func (w *witness) everLost(other *witness) map[string]bool {
	all := map[string]bool{}
	for _, each := range []*witness{w, other} {
		each.mu.Lock()
		maps.Copy(all, each.lost)
		each.mu.Unlock()
	}
	return all
}

// forget begins to count what is lost anew.
func (w *witness) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.lost)
}

// counted notes the sessions that a node opens.
type counted struct {
	driver.Backend
	mu     sync.Mutex
	opened []driver.Session
}

func (c *counted) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := c.Backend.Open(ctx, self, ttl)
	if err == nil {
		c.mu.Lock()
		c.opened = append(c.opened, s)
		c.mu.Unlock()
	}
	return s, err
}

func (c *counted) statements() (sum int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.opened {
		sum += postgres.Statements(s)
	}
	return sum
}

// With the lease of 15 s a node looks 20 times in a minute, so that 3 statements for each look are 60.
func TestAnIdleNodeSendsAtMostThreeStatementsForEachLookWhateverItOwns(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, 1000} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			b := &counted{Backend: newBackend(t, pgtest.DSN(t), nil)}
			node, w := run(t, b, n, func(c *shards.Config) { c.LeaseDuration = 3 * time.Second })
			eventually(t, func() bool { owned, _ := w.counts(); return owned == n }, "all are owned")
			within := false
			for range 5 { // on a busy machine looks come late, and renewals are tried again
				looks, statements := node.Stats().Looks, b.statements()
				const measured = 10
				eventually(t, func() bool { return node.Stats().Looks >= looks+measured }, "it looks")
				looks, statements = node.Stats().Looks-looks, b.statements()-statements
				t.Logf("%d statements for %d looks: %.0f in a minute with a lease of 15 s", statements, looks, 20*float64(statements)/float64(looks))
				require.GreaterOrEqual(t, statements, looks, "the control: they are counted")
				if within = statements <= 3*looks; within {
					break
				}
			}
			assert.True(t, within, "at most three statements for each look")
		})
	}
}

func TestAClockThatIsSetBackCostsNoShardAndOneThatIsSetForwardDoes(t *testing.T) {
	t.Parallel()
	const n = 12
	clock := service.NewClock(t)
	server := pgtest.StartServer(t, pgserver.Options{Env: clock.Env})
	_, w := run(t, newBackend(t, server.DSN(""), nil), n, func(c *shards.Config) { c.LeaseDuration = 15 * time.Second })
	counts := func(want, least int) func() bool {
		return func() bool { owned, lost := w.counts(); return owned == want && lost >= least }
	}
	eventually(t, counts(n, 0), "all are owned")
	judge := newJudge(t, server.DSN(""))
	clock.Set(t, -time.Hour)
	last := func() time.Time {
		return dbtest.Ask[time.Time](judge, `SELECT min(query_start) FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'`)
	}
	before := last()
	eventually(t, func() bool { return !last().Equal(before) }, "a renewal")
	owned, lost := w.counts()
	require.Equal(t, n, owned)
	require.Zero(t, lost, "the control of what follows, too")

	ahead := time.Duration(0)
	eventually(t, func() bool { // a single step can come after the server's timer has rung
		ahead += time.Hour
		clock.Set(t, ahead)
		_, lost := w.counts()
		return lost > 0
	}, "the server ends a session")
	eventually(t, counts(n, 1), "all are owned again, in later terms")
}

func TestAnOwnedShardTakesLittleHeap(t *testing.T) { // not parallel: it measures
	pgtest.Long(t)
	const n = 10_000
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "256"}})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var begun atomic.Int64
	all := make(chan struct{})
	node, err := shards.New(shards.Config{
		Name: "tenants", Backend: newBackend(t, server.DSN(""), nil), Count: n, LookInterval: 100 * time.Millisecond, LeaseDuration: ttl,
	})
	require.NoError(t, err)
	before := heap()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	start := time.Now()
	go func() {
		done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
			if begun.Add(1) == n {
				close(all)
			}
			<-ctx.Done()
			return nil
		})
	}()
	await.Receive(t, 3*patience, all, func() string { return fmt.Sprintf("all are owned: %+v", node.Stats()) })
	t.Logf("%d shards were owned after %v", n, time.Since(start))
	each := (heap() - before) / n
	t.Logf("%d bytes for each owned shard", each)
	assert.LessOrEqual(t, each, uint64(4<<10))
	stop()
	require.NoError(t, <-done)
}

func TestASessionAnswersWhatItOwns(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	b := newBackend(t, dsn, func(c *postgres.Config) { c.Answer.Service = "polling" })
	s, other := open(t, b, "web-3"), open(t, b, "web-3")
	claim(t, s, "1", "acme")
	claim(t, other, "2")
	conn := pgtest.Connect(t, dsn)
	ask := func(q introspect.Question) (a introspect.Answer) {
		answers, err := introspect.Ask(t.Context(), conn, q)
		require.NoError(t, err)
		if len(answers.Answers) == 1 {
			a = answers.Answers[0]
		}
		return a
	}
	newJudge(t, dsn).Until(func() bool { return ask(introspect.Question{}).AllLocks == 5 }) // who has begun to listen may not answer yet

	a := ask(introspect.Question{Timeout: 20 * time.Second, Prefix: "tenant/"})
	require.Equal(t, "polling", a.Process.Service)
	require.Equal(t, 3, a.AllLocks)
	require.Len(t, a.Groups, 2, "one for each session")
	sessions := map[uint32]int{}
	for _, g := range a.Groups {
		require.Equal(t, "tenant=7", g.Name)
		require.Equal(t, "web-3", g.Node)
		sessions[g.Session] = g.Owned
	}
	names := map[string]namespace.Tag{}
	for _, l := range a.Locks {
		names[l.Key] = l.Tag
		require.Equal(t, "tenant=7", l.Group)
		require.Contains(t, sessions, l.Session)
	}
	key, err := tenants.Text("acme")
	require.NoError(t, err)
	require.Equal(t, map[string]namespace.Tag{"tenant/1": tenants.ID(1).Tag(), "tenant/2": tenants.ID(2).Tag(), "tenant/acme": key.Tag()}, names)

	replies, err := introspect.Send(t.Context(), conn, introspect.Request{Timeout: 20 * time.Second, Kind: introspect.AskRelease, Tag: key.Tag()})
	require.NoError(t, err)
	require.Len(t, replies, 1)
	require.False(t, replies[0].Done)
	require.Contains(t, replies[0].Refused, "pglatch shards")

	release(t, s, "acme")
	require.Equal(t, 2, ask(introspect.Question{Timeout: 20 * time.Second, Prefix: "tenant/"}).AllLocks)
	require.NoError(t, s.Close())
	require.Equal(t, 1, ask(introspect.Question{Timeout: 20 * time.Second, Prefix: "tenant/"}).AllLocks)
}
