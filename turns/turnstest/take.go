package turnstest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/turns"
)

var takeCases = []testCase{
	{"messages have their turns in order, and once, on two nodes", func(s *suite) {
		a, b, r := s.open(), s.open(), newRecorder()
		var mu sync.Mutex
		busy := map[string]bool{}
		handler := func(ctx context.Context, t *turns.Turn) error {
			name := t.Entity().Entity()
			mu.Lock()
			assert.False(s, busy[name], "two turns of one entity")
			busy[name] = true
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				delete(busy, name)
			}()
			return r.handle(ctx, t)
		}
		var want []string
		for i := range 5 {
			want = append(want, fmt.Sprint(i))
			for _, entity := range []string{"a", "b", "c"} {
				s.send(a, entity, fmt.Sprint(i))
			}
		}
		s.serve(a, handler)
		s.serve(b, handler)
		for range 15 {
			receive(s, r.turns)
		}
		for _, entity := range []string{"a", "b", "c"} {
			assert.Equal(s, want, r.of(entity), entity)
		}
	}},
	{"a turn takes one message, or all that wait up to a number", func(s *suite) {
		for batch, want := range map[int][][]string{0: {{"1"}, {"2"}, {"3"}}, 2: {{"1", "2"}, {"3"}}, 10: {{"1", "2", "3"}}} {
			p, r := s.open(func(c *turns.Config) { c.Name, c.Batch = fmt.Sprint("box", batch), batch }), newRecorder()
			for i := range 3 {
				s.send(p, "a", fmt.Sprint(i+1))
			}
			s.serve(p, r.handle)
			for _, texts := range want {
				assert.Equal(s, texts, receive(s, r.turns), batch)
			}
		}
	}},
	{"a burst becomes one turn", func(s *suite) {
		p, r := s.open(func(c *turns.Config) { c.Batch, c.Quiet = 100, time.Second }), newRecorder()
		s.serve(p, r.handle)
		for i := range 3 {
			s.send(p, "a", fmt.Sprint(i))
			s.pause(10 * time.Millisecond)
		}
		assert.Equal(s, []string{"0", "1", "2"}, receive(s, r.turns))
	}},
	{"a message is what was sent", func(s *suite) {
		p := s.open()
		handler, held := s.hold()
		s.serve(p, handler)
		ticket := s.sendID(p, "a b/ü", "x'\\\x00\xff", "1")
		turn := receive(s, held)
		message := turn.Messages()[0]
		assert.Equal(s, []any{"1", "x'\\\x00\xff", "trace of 1", ticket.Number}, []any{message.ID, string(message.Body), message.Trace, message.Number})
		assert.WithinDuration(s, time.Now(), message.SentAt, time.Minute)
		assert.Equal(s, key(s, "a b/ü"), turn.Entity())
		assert.Equal(s, 1, turn.Attempt())
		turn.end <- nil
	}},
	{"what comes while a turn runs is part of its commit, or of the next turn", func(s *suite) {
		p, r := s.open(), newRecorder()
		handler, held := s.hold()
		stop := s.serve(p, handler)
		s.send(p, "a", "1")
		turn := receive(s, held)
		more, err := turn.More(turn.ctx)
		require.NoError(s, err)
		assert.Empty(s, more)
		taken := s.sendID(p, "a", "2", "2")
		more, err = turn.More(turn.ctx)
		require.NoError(s, err)
		assert.Equal(s, []string{"2"}, bodies(more))
		assert.Equal(s, []string{"1", "2"}, bodies(turn.Messages()))
		s.send(p, "a", "3")
		turn.SetValue([]byte("of both"))
		require.NoError(s, turn.Commit(turn.ctx, nil))
		turn.end <- nil
		assert.Equal(s, turns.Outcome{State: turns.Done, Value: []byte("of both")}, s.wait(p, taken))
		next := receive(s, held)
		assert.Equal(s, []string{"3"}, bodies(next.Messages()))
		next.end <- nil
		stop()
		s.serve(p, r.handle)
		s.send(p, "a", "4")
		assert.Equal(s, []string{"4"}, receive(s, r.turns), "nothing came twice")
	}},
	{"a turn has the mutex of its entity", func(s *suite) {
		p, other := s.open(), s.open()
		handler, held := s.hold()
		s.serve(p, handler)
		s.send(p, "a", "1")
		turn := receive(s, held)
		_, err := other.Locker.TryAcquire(s.Context(), key(s, "a"))
		require.ErrorIs(s, err, advisory.ErrHeld)
		_, err = p.Locker.TryAcquire(turn.ctx, key(s, "a"))
		require.ErrorIs(s, err, advisory.ErrReentrant)
		turn.end <- nil
		lock, err := other.Locker.Acquire(s.Context(), key(s, "a"))
		require.NoError(s, err)
		s.send(p, "a", "2")
		s.pause(100 * time.Millisecond)
		assert.Empty(s, held)
		require.NoError(s, lock.Release())
		receive(s, held).end <- nil
	}},
	{"the entity that has been ready for longest is next", func(s *suite) {
		p, r := s.open(func(c *turns.Config) { c.Concurrency = 1 }), newRecorder()
		for _, entity := range []string{"c", "a", "b"} {
			s.send(p, entity, entity+"1")
			s.pause(2 * time.Millisecond)
			s.send(p, entity, entity+"2")
		}
		s.serve(p, r.handle)
		for _, text := range []string{"c1", "a1", "b1", "c2", "a2", "b2"} {
			assert.Equal(s, []string{text}, receive(s, r.turns))
		}
	}},
	{"an idle node has a message at once", func(s *suite) {
		p, r := s.open(), newRecorder()
		s.serve(p, r.handle)
		for i := range 3 {
			s.pause(700 * time.Millisecond) // it looks rarely then
			s.send(p, "a", fmt.Sprint(i))
			assert.Equal(s, []string{fmt.Sprint(i)}, receive(s, r.turns))
		}
	}},
}
