package turns_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/turns"
	"github.com/pglatch/pglatch/turns/turnstest"
)

// A slowLook makes looks slow, and adds up their time.
type slowLook struct {
	took  time.Duration
	total atomic.Int64
}

func (s *slowLook) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "pglatch_turns.look(") {
		bubble.Sleep(s.took)
		s.total.Add(int64(s.took))
	}
	return ctx
}

func (*slowLook) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// traced opens a process on a server in memory, and its mailbox on a pool with a tracer.
func traced(t *testing.T, tracer pgx.QueryTracer) (*turnstest.Process, *turns.Mailbox) {
	t.Helper()
	process, err := turnstest.NewServer().Open(turns.Config{Name: "chat", Namespace: conversations})
	require.NoError(t, err)
	t.Cleanup(process.Close)
	config := process.Pool.Config()
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	box, err := turns.Open(t.Context(), turns.Config{Name: "chat", Namespace: conversations, Pool: pool, Locker: process.Locker})
	require.NoError(t, err)
	return process, box
}

// A node claims nothing while it looks. So while there is work, looks leave four fifths of the time for claims. An idle node,
// which is the control, looks again after a second.
func TestSlowLooksLeaveTimeForClaims(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"work": true, "control: no work": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const took, span = 2 * time.Second, 40 * time.Second
				slow := &slowLook{took: took}
				process, box := traced(t, slow)
				if busy {
					_, err := process.Post(t.Context(), key(t, "a"), turns.Message{})
					require.NoError(t, err)
				}
				ctx, stop := context.WithCancel(t.Context())
				served := make(chan error, 1)
				var handled atomic.Int64
				go func() {
					served <- box.Serve(ctx, func(ctx context.Context, turn *turns.Turn) error {
						handled.Add(1)
						bubble.Sleep(50 * time.Millisecond)
						return turn.Commit(ctx, func(tx pgx.Tx) error { // there is always one message
							_, err := box.Send(ctx, tx, turn.Entity(), turns.Message{})
							return err
						})
					})
				}()
				bubble.Sleep(span)
				share := float64(slow.total.Load()) / float64(span)
				if busy {
					assert.InDelta(t, 0.2, share, 0.05, "of the time in looks")
					assert.Greater(t, handled.Load(), int64(span/took)*20, "a turn takes 50 ms")
				} else {
					assert.Greater(t, share, 0.5, "of the time in looks")
				}
				stop()
				require.NoError(t, <-served)
			})
		})
	}
}

// Beside a turn of a minute, and in an idle mailbox, a node sends one statement a second, which writes nothing.
func TestALongTurnAndAnIdleMailboxCostOneLookASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const span = time.Minute
		c := &counter{make(chan string, 10_000)}
		process, box := traced(t, c)
		ctx, stop := context.WithCancel(t.Context())
		served, began, leave := make(chan error, 1), make(chan struct{}), make(chan struct{})
		go func() {
			served <- box.Serve(ctx, func(context.Context, *turns.Turn) error {
				close(began)
				<-leave
				return nil
			})
		}()
		seen := func() (looks, others []string) {
			for {
				select {
				case sql := <-c.statements:
					if strings.Contains(sql, "pglatch_turns.look(") || strings.Contains(sql, "pglatch_turns.sweep(") {
						looks = append(looks, sql)
					} else if strings.Contains(sql, "pglatch_turns.") {
						others = append(others, sql)
					}
				default:
					return looks, others
				}
			}
		}
		_, err := process.Post(t.Context(), key(t, "a"), turns.Message{})
		require.NoError(t, err)
		<-began
		bubble.Sleep(time.Second) // while which the node looks for more, as it has found something
		_, others := seen()
		assert.Contains(t, strings.Join(others, ""), "pglatch_turns.claim(", "the control")
		bubble.Sleep(span)
		looks, others := seen()
		assert.LessOrEqual(t, len(looks), int(span/time.Second)+1)
		assert.Empty(t, others, "during the turn")
		close(leave)
		bubble.Sleep(time.Second)
		_, others = seen()
		assert.Contains(t, strings.Join(others, ""), "pglatch_turns.finish(", "the control: its commit")
		bubble.Sleep(span)
		looks, others = seen()
		assert.LessOrEqual(t, len(looks), int(span/time.Second)+1)
		assert.Empty(t, others, "of an idle mailbox")
		stop()
		require.NoError(t, <-served)
	})
}

// A farLook makes looks slow that begin with the first entry of the index.
type farLook struct{ search time.Duration }

func (f *farLook) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "pglatch_turns.look(") && data.Args[2] == int64(0) {
		bubble.Sleep(time.Second)
	}
	return ctx
}

func (f *farLook) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool { return strings.Contains(q.SQL, "pglatch_turns.earliest(") }) {
		bubble.Sleep(f.search)
	}
	return ctx
}

func (*farLook) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*farLook) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*farLook) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// While looks from the first entry of the index on are slow, the loop does without them. What a claim skipped, because its
// sender committed late, is found by a search beside the loop.
func TestTheMessageOfALongTransactionIsFoundWhileLooksAreSlow(t *testing.T) {
	t.Parallel()
	for name, search := range map[string]time.Duration{"found": time.Second, "control: the search has no end": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				process, box := traced(t, &farLook{search})
				ctx, stop := context.WithCancel(t.Context())
				served, handled := make(chan error, 1), make(chan string, 100)
				go func() {
					served <- box.Serve(ctx, func(_ context.Context, turn *turns.Turn) error {
						handled <- texts(turn.Messages())
						return nil
					})
				}()
				tx, err := process.Pool.Begin(t.Context())
				require.NoError(t, err)
				_, err = process.Send(t.Context(), tx, key(t, "late"), turns.Message{Body: []byte("late")})
				require.NoError(t, err)
				for range 10 { // the node claims what was sent later
					bubble.Sleep(time.Second)
					_, err := process.Post(t.Context(), key(t, "a"), turns.Message{Body: []byte("1")})
					require.NoError(t, err)
					require.Equal(t, "1", <-handled)
				}
				require.NoError(t, tx.Commit(t.Context()))
				bubble.Sleep(10 * time.Second)
				assert.Len(t, handled, map[bool]int{true: 1}[search == time.Second])
				stop()
				require.NoError(t, <-served)
			})
		})
	}
}
