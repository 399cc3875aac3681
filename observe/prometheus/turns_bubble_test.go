package prometheus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/turns"
)

func TestTurnsAreCountedByTheirResult(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		observer := s.metrics.Turns("chat")
		assert.Equal(s, 3, testutil.CollectAndCount(s.metrics, "pglatch_turns_total"), "before the first, too")
		observer.Ended(turns.TurnData{Messages: 3, Took: time.Second, Committed: true})
		observer.Ended(turns.TurnData{Messages: 3, Took: time.Second, Err: errors.New("no model")})
		observer.Ended(turns.TurnData{Messages: 3, Took: time.Second, Err: &turns.StaleError{}})
		s.expect("pglatch_turns_total", `{mailbox="chat",result="committed"} 1`, `{mailbox="chat",result="failed"} 1`, `{mailbox="chat",result="stale"} 1`)
		s.expect("pglatch_turn_messages_total", `{mailbox="chat"} 3`)
		assert.Equal(s, 1, testutil.CollectAndCount(s.metrics, "pglatch_turn_seconds"))
	})
}

// A box is a mailbox whose Stats a test sets.
type box struct {
	stats turns.Stats
	down  atomic.Bool
}

func (b *box) Name() string { return "chat" }

func (b *box) Stats(context.Context) (turns.Stats, error) {
	if b.down.Load() {
		return turns.Stats{}, errors.New("no server")
	}
	return b.stats, nil
}

func TestAMailboxIsLookedAtAtIntervals(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		b := &box{stats: turns.Stats{Ready: 4, Running: 2, Stopped: 1, Dead: 3, Nodes: 2, OldestReady: 1500 * time.Millisecond}}
		stop, other := s.metrics.WatchMailbox(b, 0), s.metrics.WatchMailbox(b, time.Minute)
		synctest.Wait()
		check := func(up string) {
			s.Helper()
			s.expect("pglatch_mailbox_entities", `{mailbox="chat",state="ready"} 4`, `{mailbox="chat",state="running"} 2`, `{mailbox="chat",state="stopped"} 1`)
			s.expect("pglatch_mailbox_dead_letters", `{mailbox="chat"} 3`)
			s.expect("pglatch_mailbox_nodes", `{mailbox="chat"} 2`)
			s.expect("pglatch_mailbox_oldest_ready_seconds", `{mailbox="chat"} 1.5`)
			s.expect("pglatch_mailbox_up", up)
		}
		check(`{mailbox="chat"} 1`)
		other()
		b.down.Store(true)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		assert.Equal(s, 1, testutil.CollectAndCount(s.metrics, "pglatch_mailbox_up"))
		s.expect("pglatch_mailbox_up")
		s.expect("pglatch_mailbox_nodes", `{mailbox="chat"} 2`)
		b.down.Store(false)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		check(`{mailbox="chat"} 1`)
		stop()
		stop()
		assert.Zero(s, testutil.CollectAndCount(s.metrics, "pglatch_mailbox_up"), "nobody watches it")
	})
}
