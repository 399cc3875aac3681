package turnstest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/turns"
)

var sendCases = []testCase{
	{"a send waits for the end of an earlier one", func(s *suite) {
		p := s.open()
		s.send(p, "a", "its row is there before")
		tx := s.begin(p)
		first, err := p.Send(s.Context(), tx, key(s, "a"), turns.Message{})
		require.NoError(s, err)
		s.send(p, "b", "another entity does not wait")
		second := make(chan turns.Ticket, 1)
		go func() {
			ticket, err := p.Post(s.Context(), key(s, "a"), turns.Message{})
			assert.NoError(s, err)
			second <- ticket
		}()
		s.pause(2 * time.Second)
		assert.Empty(s, second)
		require.NoError(s, tx.Commit(s.Context()))
		assert.Greater(s, receive(s, second).Number, first.Number)
	}},
	{"a wait for another sender is bounded, and typed", func(s *suite) {
		p := s.open(func(c *turns.Config) { c.SendWait = 20 * time.Millisecond })
		_, err := p.Send(s.Context(), s.begin(p), key(s, "a"), turns.Message{})
		require.NoError(s, err)
		tx := s.begin(p)
		_, err = p.Send(s.Context(), tx, key(s, "a"), turns.Message{})
		var timeout *turns.TimeoutError
		require.ErrorAs(s, err, &timeout)
		assert.Equal(s, turns.TimeoutError{Entity: "a", Waited: 20 * time.Millisecond}, *timeout)
		_, err = p.Send(s.Context(), tx, key(s, "b"), turns.Message{})
		require.NoError(s, err, "the transaction is as it was")
		require.NoError(s, tx.Commit(s.Context()))
	}},
	{"opposite orders are a deadlock of one", func(s *suite) {
		p := s.open()
		var both sync.WaitGroup
		errs := make(chan error, 2)
		ready := make(chan bool, 2)
		start := make(chan bool)
		for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
			tx := s.begin(p)
			both.Go(func() {
				_, err := p.Send(s.Context(), tx, key(s, order[0]), turns.Message{})
				assert.NoError(s, err)
				ready <- true
				<-start
				_, err = p.Send(s.Context(), tx, key(s, order[1]), turns.Message{})
				errs <- errors.Join(err, tx.Rollback(s.Context()))
			})
		}
		receive(s, ready)
		receive(s, ready)
		close(start)
		both.Wait()
		one, other := <-errs, <-errs
		if one == nil {
			one, other = other, one
		}
		require.ErrorIs(s, one, turns.ErrDeadlock)
		require.NoError(s, other)
	}},
	{"a message exists when its transaction commits", func(s *suite) {
		p, r := s.open(), newRecorder()
		s.serve(p, r.handle)
		tx := s.begin(p)
		aborted, err := p.Send(s.Context(), tx, key(s, "a"), turns.Message{ID: "1", Body: []byte("aborted")})
		require.NoError(s, err)
		require.NoError(s, tx.Rollback(s.Context()))
		tx = s.begin(p)
		_, err = p.Send(s.Context(), tx, key(s, "b"), turns.Message{Body: []byte("late")})
		require.NoError(s, err)
		ticket := s.sendID(p, "a", "sent", "1")
		assert.False(s, ticket.Again, "the first one was not sent")
		assert.Equal(s, turns.Done, s.wait(p, ticket).State)
		assert.Equal(s, []string{"sent"}, receive(s, r.turns))
		assert.Empty(s, r.of("b"))
		require.NoError(s, tx.Commit(s.Context()))
		assert.Equal(s, []string{"late"}, receive(s, r.turns))
		o, err := p.Look(s.Context(), aborted)
		require.NoError(s, err)
		assert.Equal(s, turns.Unknown, o.State)
	}},
	{"a resend does nothing, and returns the first ticket", func(s *suite) {
		p, r := s.open(), newRecorder()
		tx := s.begin(p)
		first, err := p.Send(s.Context(), tx, key(s, "a"), turns.Message{ID: "1", Body: []byte("x")})
		require.NoError(s, err)
		again, err := p.Send(s.Context(), tx, key(s, "a"), turns.Message{ID: "1", Body: []byte("y")})
		require.NoError(s, err)
		require.NoError(s, tx.Commit(s.Context()))
		assert.True(s, again.Again)
		assert.Equal(s, first.Number, again.Number)
		s.serve(p, r.handle)
		assert.Equal(s, []string{"x"}, receive(s, r.turns))
		again = s.sendID(p, "a", "z", "1") // after its turn
		assert.True(s, again.Again)
		assert.Equal(s, first.Number, again.Number)
		s.sendID(p, "a", "another", "2")
		assert.Equal(s, []string{"another"}, receive(s, r.turns))
		assert.False(s, s.sendID(p, "b", "of another entity", "1").Again)
	}},
	{"limits are typed, and leave the transaction as it was", func(s *suite) {
		p := s.open(func(c *turns.Config) { c.MaxBytes, c.MaxDepth = 10, 2 })
		for what, text := range map[string]string{"bytes": strings.Repeat("x", 11), "depth": "x"} {
			tx := s.begin(p)
			for range 2 {
				_, err := p.Send(s.Context(), tx, key(s, what), turns.Message{Body: []byte("ok")})
				require.NoError(s, err)
			}
			_, err := p.Send(s.Context(), tx, key(s, what), turns.Message{Body: []byte(text)})
			var limit *turns.LimitError
			require.ErrorAs(s, err, &limit)
			assert.Equal(s, what, limit.What)
			require.NoError(s, tx.Commit(s.Context()))
		}
		stats, err := p.Stats(s.Context())
		require.NoError(s, err)
		assert.EqualValues(s, 2, stats.Ready)
	}},
	{"the messages of all entities together are limited, and a transaction is as it was", func(s *suite) {
		p := s.open(func(c *turns.Config) { c.MaxTotal = 3 })
		s.send(p, "a", "1")
		tx := s.begin(p)
		for _, entity := range []string{"a", "b"} {
			_, err := p.Send(s.Context(), tx, key(s, entity), turns.Message{})
			require.NoError(s, err)
		}
		_, err := p.Send(s.Context(), tx, key(s, "c"), turns.Message{})
		var limit *turns.LimitError
		require.ErrorAs(s, err, &limit)
		assert.Equal(s, turns.LimitError{What: "total", Limit: "3"}, turns.LimitError{What: limit.What, Limit: limit.Limit})
		require.NoError(s, tx.Commit(s.Context()))
	}},
	{"entities and their messages are listed", func(s *suite) {
		p := s.open()
		handler, held := s.hold()
		s.send(p, "a", "1")
		s.serve(p, handler)
		turn := receive(s, held)
		s.send(p, "a", "2")
		e, err := p.Entity(s.Context(), key(s, "a"))
		require.NoError(s, err)
		assert.Equal(s, []any{turns.EntityRunning, 1, int64(2)}, []any{e.State, e.Attempts, e.Messages})
		running, err := p.Entities(s.Context(), turns.EntityRunning, 10)
		require.NoError(s, err)
		require.Len(s, running, 1)
		assert.Equal(s, "a", running[0].Entity)
		ready, err := p.Entities(s.Context(), turns.EntityReady, 10)
		require.NoError(s, err)
		assert.Empty(s, ready)
		messages, err := p.Messages(s.Context(), key(s, "a"), turn.Messages()[0].Number, 10)
		require.NoError(s, err)
		assert.Equal(s, []string{"2"}, bodies(messages))
		turn.end <- nil
		receive(s, held).end <- nil
		e, err = p.Entity(s.Context(), key(s, "b"))
		require.NoError(s, err)
		assert.Equal(s, turns.EntityIdle, e.State)
	}},
	{"an entity that is busy refuses messages, if its mailbox does", func(s *suite) {
		p := s.open(func(c *turns.Config) { c.RefuseBusy = true })
		ticket := s.sendID(p, "a", "first", "1")
		s.refused(p, "a", "second", turns.ErrBusy)
		assert.True(s, s.sendID(p, "a", "first", "1").Again, "a resend is no further message")
		s.send(p, "b", "another entity")
		handler, held := s.hold()
		s.serve(p, handler)
		for range 2 {
			turn := receive(s, held)
			if turn.Entity() == key(s, "a") {
				s.refused(p, "a", "while it runs", turns.ErrBusy)
			}
			turn.end <- nil
		}
		s.wait(p, ticket)
		s.send(p, "a", "third")
	}},
	{"many messages are sent in an order in which no two wait for each other", func(s *suite) {
		p, r := s.open(), newRecorder()
		tx := s.begin(p)
		tickets, err := p.SendMany(s.Context(), tx, []turns.Envelope{{Entity: key(s, "b")}, {Entity: key(s, "a")}, {Entity: key(s, "b")}})
		require.NoError(s, err)
		assert.Less(s, tickets[1].Number, tickets[0].Number, "a comes before b")
		assert.Less(s, tickets[0].Number, tickets[2].Number)
		many := make([]turns.Envelope, turns.MaxEntities+1)
		for i := range many {
			many[i].Entity = key(s, fmt.Sprint(i))
		}
		_, err = p.SendMany(s.Context(), tx, many)
		require.ErrorIs(s, err, turns.ErrLimit)
		require.NoError(s, tx.Rollback(s.Context()))
		var writing sync.WaitGroup
		for i := range 4 {
			writing.Go(func() {
				var all []turns.Envelope
				for j := range 6 {
					all = append(all, turns.Envelope{Entity: key(s, fmt.Sprint((i+j)%3)), Message: turns.Message{Body: fmt.Append(nil, i, "-", j)}})
				}
				tx := s.begin(p)
				tickets, err := p.SendMany(s.Context(), tx, all)
				assert.NoError(s, err)
				assert.Len(s, tickets, 6)
				assert.NoError(s, tx.Commit(s.Context()))
			})
		}
		writing.Wait()
		s.serve(p, r.handle)
		for range 24 {
			receive(s, r.turns)
		}
		for i := range 3 {
			assert.Len(s, r.of(fmt.Sprint(i)), 8)
		}
	}},
}
