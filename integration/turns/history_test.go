//go:build integration

package turns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/turns"
)

// A bench is a database with the mailbox.
type bench struct {
	*dbtest.Database
	box  *turns.Mailbox
	pool *pgxpool.Pool
}

func newBench(t *testing.T, db *dbtest.Database) *bench {
	t.Helper()
	db.Exec(tables)
	pool, err := pgxpool.New(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	box, err := turns.Open(t.Context(), mailbox(pool))
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	return &bench{db, box, pool}
}

// without runs the schema again with parts of its functions replaced, in pairs: the control of a test.
func (b *bench) without(t *testing.T, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		require.Contains(t, turns.Schema(), pairs[i])
	}
	b.Exec(strings.NewReplacer(pairs...).Replace(turns.Schema()), pgx.QueryExecModeSimpleProtocol)
}

// rows returns what a query returns.
func rows[T any](t *testing.T, b *bench, sql string, args ...any) []T {
	t.Helper()
	found, err := b.Pool.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	all, err := pgx.CollectRows(found, pgx.RowToStructByPos[T])
	require.NoError(t, err)
	return all
}

// stale counts the commits of a turn after a later turn of its entity began.
func (b *bench) stale() int {
	return dbtest.Ask[int](b.Database, `SELECT count(*) FROM done AS d WHERE EXISTS (
		SELECT FROM begun AS b WHERE b.entity = d.entity AND b.token > d.token AND b.n < d.n)`)
}

// sessions counts those of a node's Locker.
func (b *bench) sessions(name string) int {
	return dbtest.Ask[int](b.Database, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, name)
}

var errAbort = errors.New("the sender aborts")

// send sends a message in a transaction that aborts now and then. It returns 0 then.
func (b *bench) send(ctx context.Context, entity, id string, abort bool) (number int64, err error) {
	key, err := entities.Text(entity)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		ticket, err := b.box.Send(ctx, tx, key, turns.Message{ID: id, Body: []byte("hello")})
		if err == nil && abort {
			return errAbort
		}
		number = ticket.Number
		return err
	})
	if abort {
		return 0, nil // nothing was sent, whatever the error is
	}
	return number, err
}

// A sent is what a history knows of the messages of one entity.
type sent struct {
	last atomic.Int64 // the number of the last one that was acknowledged
	mu   sync.Mutex
	ids  map[string]int64 // the number of each
}

// sendAll sends messages from several senders at once, and returns those of each entity. A message that is sent after
// another was acknowledged has a greater number. A message without an answer is sent again, under its ID. finish ends it.
func (b *bench) sendAll(t *testing.T, senders, names int) (finish func() map[string]*sent) {
	t.Helper()
	all := map[string]*sent{}
	for i := range names {
		all[fmt.Sprintf("e%d", i)] = &sent{ids: map[string]int64{}}
	}
	var writing sync.WaitGroup
	going, stop := context.WithCancel(t.Context())
	for i := range senders {
		writing.Go(func() {
			for j := 0; pause.For(going, 10*time.Millisecond) == nil; j++ {
				entity, id := fmt.Sprintf("e%d", rand.IntN(names)), fmt.Sprintf("%d-%d", i, j) //nolint:gosec // any entity
				s, abort := all[entity], rand.IntN(10) == 0                                    //nolint:gosec // chooses what to abort
				before := s.last.Load()
				number, err := b.send(t.Context(), entity, id, abort)
				for end := time.Now().Add(await.Patience); err != nil && time.Now().Before(end); number, err = b.send(t.Context(), entity, id, abort) {
					for _, never := range []error{turns.ErrBusy, turns.ErrLimit, turns.ErrInvalid, turns.ErrDeadlock, turns.ErrConflict} {
						assert.NotErrorIs(t, err, never)
					}
					_ = pause.For(t.Context(), 20*time.Millisecond)
				}
				if !assert.NoError(t, err) || number == 0 {
					continue
				}
				assert.Greater(t, number, before, "numbers follow commits")
				s.mu.Lock()
				s.ids[id] = number
				s.last.Store(max(s.last.Load(), number))
				s.mu.Unlock()
			}
		})
	}
	return func() map[string]*sent {
		stop()
		writing.Wait()
		return all
	}
}

// judge requires that each entity's commits are exactly the messages that were sent, in order, once.
func (b *bench) judge(t *testing.T, all map[string]*sent) (commits int) {
	t.Helper()
	type done struct {
		ID     string
		Number int64
	}
	for entity, s := range all {
		last, seen := int64(0), map[string]int64{}
		for _, d := range rows[done](t, b, `SELECT id, number FROM done WHERE entity = $1 ORDER BY n`, entity) {
			assert.Greater(t, d.Number, last, "%s: in order", entity)
			assert.NotContains(t, seen, d.ID, "%s: committed twice", entity)
			last, seen[d.ID] = d.Number, d.Number
		}
		assert.Equal(t, s.ids, seen, "%s: exactly what was sent", entity)
		commits += len(seen)
	}
	return commits
}

// replay writes what was sent, and what handlers wrote into the ledger, as a run of turns. The ledger's numbers are its order.
func (b *bench) replay(t *testing.T, all map[string]*sent) *replay.Run {
	t.Helper()
	run := replay.Start(t, "turns")
	for _, entity := range slices.Sorted(maps.Keys(all)) {
		numbers := map[int64]string{}
		for id, number := range all[entity].ids {
			numbers[number] = id
		}
		for _, number := range slices.Sorted(maps.Keys(numbers)) {
			run.Writer().Emit(trace.Event{Kind: trace.Sent, Key: entity, Number: number, Text: numbers[number]})
		}
	}
	type entry struct {
		Entity string
		Token  int64
		Number int64 // 0 = a turn has begun
		ID     string
	}
	for _, e := range rows[entry](t, b, `SELECT entity, token, number, id FROM (
		SELECT n, entity, token, 0 AS number, '' AS id FROM begun UNION ALL SELECT n, entity, token, number, id FROM done) AS ledger ORDER BY n`) {
		event := trace.Event{Kind: trace.Turn, Key: e.Entity, Term: uint64(e.Token), Number: e.Number, Text: e.ID} //nolint:gosec // tokens are positive
		if e.Number != 0 {
			event.Kind = trace.Commit
		}
		run.Writer().Emit(event)
	}
	run.Writer().Emit(trace.Event{Kind: trace.Stopped})
	return run
}

func TestEachMessageIsCommittedOnceInOrderUnderFaults(t *testing.T) {
	t.Parallel()
	entities := soak.Size(t, 20, 200)
	s := newStage(t, entities)
	finish := s.sendAll(t, soak.Size(t, 4, 20), entities)
	await.Until(t, await.Patience, func() bool { return dbtest.Ask[int](s.Database, `SELECT count(*) FROM done`) > 0 })
	for round := range soak.Size(t, len(faults), 150) {
		f := faults[round%len(faults)]
		s.strike(t, f, stageNodes[round/len(faults)%len(stageNodes)])
	}
	all := finish()
	await.Until(t, 3*await.Patience, func() bool { return dbtest.Ask[int](s.Database, `SELECT count(*) FROM pglatch_turns.messages`) == 0 })
	tally.Count(t, "commits", s.judge(t, all))
	assert.Zero(t, s.stale())
	s.replay(t, all).RequireLegal(trace.Sent, trace.Turn, trace.Commit, trace.Stopped)

	most, of, count, judged := s.worst(t)
	t.Logf("of %d waits the longest was %v while a worker was free: that of %s, from %v to %v; workers were provably free for %v",
		count, most, of.entity, of.from, of.to, judged)
	tally.Count(t, "waits", count)
	assert.LessOrEqual(t, most, longest, "no entity waits for longer while a worker is free")
	assert.Positive(t, judged, "the machine is too busy to say anything about waits")
}

// The control of the judge of waits: an entity that nobody takes.
func TestAnEntityThatNobodyTakesIsFound(t *testing.T) {
	t.Parallel()
	s := newStage(t, 2)
	s.without(t, "r.mailbox = p_mailbox AND r.state = 'ready'", "r.mailbox = p_mailbox AND r.entity <> 'e0' AND r.state = 'ready'")
	for _, entity := range []string{"e0", "e1"} {
		_, err := s.send(t.Context(), entity, entity, false)
		require.NoError(t, err)
	}
	await.Until(t, 3*await.Patience, func() bool {
		most, of, _, _ := s.worst(t)
		return most > longest && of.entity == "e0"
	})
	assert.Equal(t, 1, dbtest.Ask[int](s.Database, `SELECT count(*) FROM done`))
}

func TestAStoppedProcessDoesNotCommitAfterALaterTurnBegan(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"the token decides": false, "control: no token decides": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each, found := soak.Size(t, 30, 250), 0
			for range soak.Size(t, 1, 21) {
				b := newBench(t, dbtest.New(t))
				if control {
					b.without(t, "x.node = p_node AND x.token = p_token AND", "x.entity = p_entity AND", "e.node = p_node AND e.token = p_token AND", "e.entity = p_entity AND")
				}
				found += b.resume(t, each, control)
			}
			if control {
				tally.Control(t, "%d stale turns committed", found)
			} else {
				tally.Count(t, "stale commits refused", found)
			}
		})
	}
}

// holdTTL is how long a process that holds its turns may be silent. A busy machine needs time for as many turns as the long
// form has. A process whose session ends before it has all of them begins no more, because its handlers do not end.
func holdTTL(t *testing.T) time.Duration {
	t.Helper()
	return soak.Size(t, ttl, 5*ttl)
}

// resume has a process stop with a turn of each entity, which another process then has. The first one goes on and commits.
// It returns how many commits there were, and requires that the check of stale commits finds what a control committed.
func (b *bench) resume(t *testing.T, entities int, control bool) int {
	t.Helper()
	begun := func() int { return dbtest.Ask[int](b.Database, `SELECT count(*) FROM begun`) }
	old := proctest.Start(t, proctest.As(t, holding, node{b.DSN, "old", entities, holdTTL(t)}))
	defer old.Kill() // the next round needs its connections
	all := map[string]*sent{}
	for i := range entities {
		number, err := b.send(t.Context(), fmt.Sprintf("e%d", i), fmt.Sprint(i), false)
		require.NoError(t, err)
		all[fmt.Sprintf("e%d", i)] = &sent{ids: map[string]int64{fmt.Sprint(i): number}}
	}
	await.Until(t, await.Patience, func() bool { return begun() == entities })
	old.Signal(syscall.SIGSTOP)
	later := proctest.Start(t, proctest.As(t, holding, node{b.DSN, "later", entities, holdTTL(t)}))
	defer later.Kill()
	await.Until(t, await.Patience, func() bool { return begun() == 2*entities }, "the same messages")
	old.Signal(syscall.SIGCONT)
	old.Tell("commit")
	want := "committed false stale true"
	if control {
		want = "committed true stale false"
	}
	for range entities {
		require.Equal(t, want, old.Says("committed"))
	}
	if control {
		assert.Equal(t, entities, b.stale(), "the check finds them")
		b.replay(t, all).RequireRefused()
		return entities
	}
	later.Tell("commit")
	for range entities {
		require.Equal(t, "committed true stale false", later.Says("committed"))
	}
	assert.Zero(t, b.stale())
	b.replay(t, all).RequireLegal(trace.Sent, trace.Turn, trace.Commit, trace.Stopped)
	assert.Equal(t, entities, dbtest.Ask[int](b.Database, `SELECT count(*) FROM done`))
	return entities
}
