package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/queue"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEachSystemDoesTheWork(t *testing.T) {
	t.Parallel()
	admin := pgtest.DSN(t)
	for i, s := range queue.Systems {
		load := queue.Load{Entities: 2, Depth: 20 * (i % 2), Duration: 50 * time.Millisecond, Workers: 3}
		var r queue.Result
		for end := time.Now().Add(time.Minute); r.Handled == 0 && time.Now().Before(end); load.Duration *= 4 {
			var err error
			r, err = queue.Measure(t.Context(), admin, s, load)
			require.NoError(t, err)
		}
		assert.Positive(t, r.Handled, s.Name)
		assert.Zero(t, r.Twice, s.Name)
		if s.Ordered {
			assert.Zero(t, r.Disorder, s.Name)
			assert.Zero(t, r.Overlaps, s.Name)
		}
	}
}

// A pair has two handlers of one entity, one after the other or at the same time.
type pair struct{ together bool }

func (pair) Fill(context.Context, int, int) error              { return nil }
func (pair) Send(context.Context, pgx.Tx, queue.Message) error { return nil }
func (pair) Close()                                            {}
func (p pair) Serve(ctx context.Context, began func([]queue.Message) func(), _ func([]queue.Message)) error {
	for range 2 {
		left := began([]queue.Message{{Entity: 7}})
		if p.together {
			defer left()
		} else {
			left()
		}
	}
	<-ctx.Done()
	return nil
}

func TestAPairWhoseSecondDatabaseCannotBeOpenedLeavesNoHandlerWaiting(t *testing.T) {
	t.Parallel()
	waiting, ended := make(chan struct{}), make(chan struct{})
	opened, broken := 0, errors.New("broken")
	s := queue.System{Open: func(context.Context, *queue.Site) (queue.Queue, error) {
		if opened++; opened > 1 {
			<-waiting
			return nil, broken
		}
		return announced{pair{}, waiting, ended}, nil
	}}
	_, _, err := queue.Pair(t.Context(), pgtest.DSN(t), s, [2]queue.Load{{Entities: 1}, {Entities: 1}}, time.Millisecond)
	require.ErrorIs(t, err, broken)
	select {
	case <-ended:
	default:
		assert.Fail(t, "a handler waits")
	}
}

// announced is a pair that tells when it serves, and when it has ended.
type announced struct {
	pair

	begins, ended chan struct{}
}

func (a announced) Serve(ctx context.Context, began func([]queue.Message) func(), ended func([]queue.Message)) error {
	defer close(a.ended)
	close(a.begins)
	return a.pair.Serve(ctx, began, ended)
}

func TestTheJudgeCountsOverlaps(t *testing.T) {
	t.Parallel()
	for together, want := range map[bool]int{false: 0, true: 1} {
		s := queue.System{Open: func(context.Context, *queue.Site) (queue.Queue, error) { return pair{together}, nil }}
		r, err := queue.Measure(t.Context(), pgtest.DSN(t), s, queue.Load{Entities: 1, Depth: 1, Duration: time.Millisecond, Workers: 1})
		require.NoError(t, err)
		assert.Equal(t, want, r.Overlaps)
	}
}
