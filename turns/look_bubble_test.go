package turns_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		time.Sleep(s.took)
		s.total.Add(int64(s.took))
	}
	return ctx
}

func (*slowLook) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A node claims nothing while it looks. So while there is work, looks leave four fifths of the time for claims. An idle node,
// which is the control, looks again after a second.
func TestSlowLooksLeaveTimeForClaims(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"work": true, "control: no work": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const took, span = 2 * time.Second, 100 * time.Second
				process, err := turnstest.NewServer().Open(turns.Config{Name: "chat", Namespace: conversations})
				require.NoError(t, err)
				defer process.Close()
				slow := &slowLook{took: took}
				config := process.Pool.Config()
				config.ConnConfig.Tracer = slow
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				require.NoError(t, err)
				defer pool.Close()
				box, err := turns.Open(t.Context(), turns.Config{Name: "chat", Namespace: conversations, Pool: pool, Locker: process.Locker})
				require.NoError(t, err)
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
						time.Sleep(50 * time.Millisecond)
						return turn.Commit(ctx, func(tx pgx.Tx) error { // there is always one message
							_, err := box.Send(ctx, tx, turn.Entity(), turns.Message{})
							return err
						})
					})
				}()
				time.Sleep(span)
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
