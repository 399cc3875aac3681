package turnstest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

var endCases = []testCase{
	{"a commit stores a value, which a wait returns", func(s *suite) {
		p := s.open()
		handler, held := s.hold()
		s.serve(p, handler)
		valued, plain := s.sendID(p, "a", "1", "1"), s.send(p, "b", "2")
		o, err := p.Look(s.Context(), valued)
		require.NoError(s, err)
		assert.Contains(s, []turns.State{turns.Waiting, turns.Running}, o.State)
		for range 2 {
			turn := receive(s, held)
			turn.SetValue([]byte("reply"))
			turn.end <- nil // which commits
		}
		assert.Equal(s, turns.Outcome{State: turns.Done, Value: []byte("reply")}, s.wait(p, valued))
		assert.Equal(s, turns.Unknown, s.wait(p, plain).State, "it has no ID")
	}},
	{"a commit whose function fails can be tried again", func(s *suite) {
		p := s.open()
		handler, held := s.hold()
		s.serve(p, handler)
		ticket := s.sendID(p, "a", "1", "1")
		turn := receive(s, held)
		failed := errors.New("failed")
		require.ErrorIs(s, turn.Commit(turn.ctx, func(pgx.Tx) error { return failed }), failed)
		require.NoError(s, turn.Commit(turn.ctx, func(pgx.Tx) error { return nil }))
		require.ErrorIs(s, turn.Commit(turn.ctx, nil), turns.ErrStale, "once")
		turn.end <- nil
		assert.Equal(s, turns.Done, s.wait(p, ticket).State)
	}},
	{"attempts that fail end in a dead letter, and the entity goes on", func(s *suite) {
		p, r := s.open(func(c *turns.Config) { c.MaxAttempts = 2 }), newRecorder()
		attempts := make(chan int, 1000)
		stop := s.serve(p, func(ctx context.Context, t *turns.Turn) error {
			if bodies(t.Messages())[0] == "poison" {
				attempts <- t.Attempt()
				if t.Attempt() == 2 {
					panic("no model")
				}
				return errors.New("no model")
			}
			return r.handle(ctx, t)
		})
		poison := s.sendID(p, "a", "poison", "1")
		s.send(p, "a", "next")
		require.Equal(s, []int{1, 2}, []int{receive(s, attempts), receive(s, attempts)})
		assert.Equal(s, []string{"next"}, receive(s, r.turns))
		letter := s.letters(p, 1)[0]
		assert.Equal(s, []any{"a", "poison", poison.Number, 2}, []any{letter.Entity, string(letter.Message.Body), letter.Message.Number, letter.Attempts})
		assert.Contains(s, letter.Error, "no model")
		o := s.wait(p, poison)
		assert.Equal(s, []any{turns.Dead, 2}, []any{o.State, o.Attempts})
		stop()
		require.NoError(s, p.Retry(s.Context(), poison.Number))
		require.ErrorIs(s, p.Retry(s.Context(), poison.Number), turns.ErrNotFound)
		s.serve(p, r.handle)
		assert.Equal(s, []string{"poison"}, receive(s, r.turns))
		assert.Equal(s, turns.Done, s.wait(p, poison).State)
	}},
	{"a dead letter stops its entity, if the mailbox says so", func(s *suite) {
		p, r := s.open(func(c *turns.Config) { c.MaxAttempts, c.OnDead = 1, turns.Stop }), newRecorder()
		var mended atomic.Bool
		s.serve(p, func(ctx context.Context, t *turns.Turn) error {
			if bodies(t.Messages())[0] == "poison" && !mended.Load() {
				return errors.New("no model")
			}
			return r.handle(ctx, t)
		})
		s.send(p, "a", "poison")
		s.send(p, "a", "next")
		letter := s.letters(p, 1)[0]
		s.send(p, "b", "another entity")
		assert.Equal(s, []string{"another entity"}, receive(s, r.turns))
		stats, err := p.Stats(s.Context())
		require.NoError(s, err)
		assert.Equal(s, []int64{1, 1, 1}, []int64{stats.Stopped, stats.Dead, stats.Nodes})
		assert.Empty(s, r.of("a"))
		require.NoError(s, p.Skip(s.Context(), letter.Message.Number))
		assert.Equal(s, []string{"next"}, receive(s, r.turns))
		s.send(p, "a", "poison")
		letter = s.letters(p, 1)[0]
		s.send(p, "a", "last")
		mended.Store(true)
		require.NoError(s, p.Retry(s.Context(), letter.Message.Number))
		assert.Equal(s, []string{"poison"}, receive(s, r.turns), "in its place")
		assert.Equal(s, []string{"last"}, receive(s, r.turns))
		assert.Empty(s, s.letters(p, 0))
	}},
	{"a turn whose messages are gone is stale", func(s *suite) {
		p := s.open()
		handler, held := s.hold()
		s.serve(p, handler)
		s.send(p, "a", "1")
		turn := receive(s, held)
		s.send(p, "a", "2")
		gone, err := p.Purge(s.Context(), key(s, "a"))
		require.NoError(s, err)
		assert.EqualValues(s, 2, gone)
		called := false
		require.ErrorIs(s, turn.Commit(turn.ctx, func(pgx.Tx) error { called = true; return nil }), turns.ErrStale)
		assert.False(s, called, "the first look finds it")
		turn.end <- nil
		s.send(p, "a", "3")
		next := receive(s, held)
		assert.Equal(s, []string{"3"}, bodies(next.Messages()))
		next.end <- nil
	}},
	{"only the current turn commits", func(s *suite) {
		old, later := s.open(), s.open()
		handler, held := s.hold()
		s.serve(old, handler)
		ticket := s.sendID(old, "a", "1", "1")
		first := receive(s, held)
		old.Locker.Close() // its process is silent, and does not look at its context
		s.serve(later, handler)
		second := receive(s, held)
		assert.Equal(s, []string{"1"}, bodies(second.Messages()))
		assert.Greater(s, second.Token(), first.Token())
		ctx := context.WithoutCancel(first.ctx)
		var stale *turns.StaleError
		require.ErrorAs(s, first.Commit(ctx, nil), &stale)
		assert.Equal(s, turns.StaleError{Entity: "a", Token: first.Token()}, *stale)
		first.end <- nil
		second.SetValue([]byte("of the second"))
		second.end <- nil
		assert.Equal(s, "of the second", string(s.wait(later, ticket).Value))
	}},
	{"a node that lives keeps its turns", func(s *suite) {
		a, b := s.open(), s.open()
		handler, held := s.hold()
		s.serve(a, handler)
		s.send(a, "a", "1")
		turn := receive(s, held)
		s.serve(b, handler)
		s.pause(2500 * time.Millisecond) // two looks of b
		assert.Empty(s, held)
		require.NoError(s, turn.Commit(turn.ctx, nil))
		turn.end <- nil
	}},
	{"a claim without an answer is given back", func(s *suite) {
		p := s.open()
		lost := &lostClaim{}
		s.serve(&Process{Mailbox: lost.box(s, p)}, func(_ context.Context, t *turns.Turn) error {
			if bodies(t.Messages())[0] == "1" {
				lost.next.Store(true)
			}
			return nil
		})
		s.wait(p, s.sendID(p, "a", "1", "1"))
		ticket := s.sendID(p, "b", "2", "2")
		assert.Equal(s, turns.Done, s.wait(p, ticket).State)
		assert.False(s, lost.next.Load(), "the claim of the second message had no answer")
	}},
	{"an interrupt from another process ends the context of a turn", func(s *suite) {
		p, other := s.open(), s.open()
		require.ErrorIs(s, other.Interrupt(s.Context(), key(s, "a"), "stop"), turns.ErrNotRunning)
		handler, held := s.hold()
		s.serve(p, handler)
		ticket := s.sendID(p, "a", "1", "1")
		turn := receive(s, held)
		require.NoError(s, other.Interrupt(s.Context(), key(s, "a"), "the user's stop"))
		receive(s, turn.ctx.Done())
		var interrupted *turns.InterruptedError
		require.ErrorAs(s, context.Cause(turn.ctx), &interrupted)
		assert.Equal(s, "the user's stop", interrupted.Reason)
		require.NoError(s, turn.Commit(context.WithoutCancel(turn.ctx), nil))
		turn.end <- nil
		assert.Equal(s, turns.Done, s.wait(p, ticket).State)
	}},
	{"a node that shuts down gives its turns back", func(s *suite) {
		a, b := s.open(func(c *turns.Config) { c.Finish = -1 }), s.open()
		stop := s.serve(a, func(ctx context.Context, _ *turns.Turn) error {
			<-ctx.Done()
			assert.ErrorIs(s, context.Cause(ctx), turns.ErrShutdown)
			return ctx.Err()
		})
		ticket := s.send(a, "a", "1")
		s.running(a, ticket)
		stop()
		handler, held := s.hold()
		s.serve(b, handler)
		turn := receive(s, held)
		assert.Equal(s, 1, turn.Attempt(), "the other one does not count")
		turn.end <- nil
	}},
	{"dead letters are listed in order, and by entity", func(s *suite) {
		p := s.open(func(c *turns.Config) { c.MaxAttempts = 1 })
		s.serve(p, func(context.Context, *turns.Turn) error { return errors.New("no model") })
		var numbers []int64
		for _, entity := range []string{"a", "b", "a"} {
			numbers = append(numbers, s.send(p, entity, entity).Number)
		}
		s.letters(p, 3)
		for _, c := range []struct {
			entity namespace.Key
			after  int64
			limit  int
			want   []int64
		}{{namespace.Key{}, 0, 2, numbers[:2]}, {namespace.Key{}, numbers[0], 10, numbers[1:]}, {key(s, "a"), 0, 10, []int64{numbers[0], numbers[2]}}} {
			letters, err := p.DeadLetters(s.Context(), c.entity, c.after, c.limit)
			require.NoError(s, err)
			var got []int64
			for _, d := range letters {
				got = append(got, d.Message.Number)
			}
			assert.Equal(s, c.want, got)
		}
		gone, err := p.Purge(s.Context(), key(s, "a"))
		require.NoError(s, err)
		assert.EqualValues(s, 2, gone)
		s.letters(p, 1)
	}},
}

// running waits until a turn has a message.
func (s *suite) running(p *Process, ticket turns.Ticket) {
	s.Helper()
	for end := time.Now().Add(bound); ; s.pause(10 * time.Millisecond) {
		o, err := p.Look(s.Context(), ticket)
		require.NoError(s, err)
		if o.State == turns.Running {
			return
		}
		require.Less(s, time.Now(), end, o.State)
	}
}
