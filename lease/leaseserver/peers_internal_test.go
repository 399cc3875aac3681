package leaseserver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/lease"
)

// newTestPeers is a server that has heard itself.
func newTestPeers(id string) *peers {
	p := newPeers(&Config{}, newQueue(&Config{}, nil))
	p.id = id
	p.receive("hello " + id)
	return p
}

// talkAll lets servers hear what all of them say, until nobody says anything or after so many
// rounds; it returns how many those were.
func talkAll(rounds int, all ...*peers) int {
	for round := range rounds {
		var messages []string
		for _, p := range all {
			messages = append(messages, p.out...)
			p.out = nil
		}
		if len(messages) == 0 {
			return round
		}
		for _, m := range messages {
			for _, p := range all {
				p.receive(m)
			}
		}
	}
	return rounds
}

// A server that begins to listen hears the others before itself.
func TestMessagesMayComeInAnyOrderAndInPieces(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"leave other 1 x", "wait other 1 x", "free other 1 x", "alive other", "hello other", "leave", "wait  ", "", "nonsense other 1 x"} {
		p := newPeers(&Config{}, newQueue(&Config{}, nil))
		p.receive(first)
		for _, message := range []string{"hello " + p.id, "hello other", "wait other 1 x", "wait other 2 x", "leave other 1 x", "leave other 1 x", "leave other 7 y"} {
			p.receive(message)
		}
		assert.Equal(t, map[string][]place{"x": {{"other", "2"}}}, p.lines, first)
		assert.Equal(t, 1, p.waiting, first)
	}
}

func TestAServerThatBeginsLearnsOfThoseWhoWait(t *testing.T) {
	t.Parallel()
	old := newTestPeers("old")
	old.receive("alive other")
	_, w := old.queue.joinForTest("x")
	old.waits(w)
	old.out = nil // before the new one listened
	fresh := newTestPeers("new")
	old.receive("hello new")
	talkAll(10, old, fresh)
	assert.Equal(t, map[string][]place{"x": {{"old", "1"}}}, fresh.lines)
}

func TestServersThatMissedALeaveDoNotSendEachOtherARequestThatIsGone(t *testing.T) {
	t.Parallel()
	a, b, c := newTestPeers("a"), newTestPeers("b"), newTestPeers("c")
	all := []*peers{a, b, c}
	for _, p := range all {
		for _, m := range []string{"alive a", "alive b", "alive c", "wait b 1 x", "wait c 1 x"} {
			p.receive(m)
		}
	}
	assert.True(t, a.free("x"))
	assert.Less(t, talkAll(100, all...), 10)
	for _, p := range all {
		assert.Empty(t, p.lines)
	}
}

func TestStrangersDoNotFillTheMemory(t *testing.T) {
	t.Parallel()
	p := newTestPeers("a")
	for range 100 {
		_, w := p.queue.joinForTest("x")
		p.waits(w)
	}
	for i := range 3 * mostServers {
		p.receive(fmt.Sprintf("hello %d", i))
	}
	assert.LessOrEqual(t, len(p.others), mostServers)
	assert.LessOrEqual(t, len(p.out), mostPlaces)
	p.receive("hello b")
	for _, m := range []string{"wait " + strings.Repeat("b", 99) + " 1 x", "wait b " + strings.Repeat("1", 99) + " x"} {
		p.receive(m)
		p.receive(strings.Replace(m, "wait", "hello", 1))
		p.receive(m)
	}
	assert.Empty(t, p.lines)
}

func TestALockWhoseNameEndsInASpaceIsThatLock(t *testing.T) {
	t.Parallel()
	p := newTestPeers("a")
	p.receive("alive b")
	_, w := p.queue.joinForTest("x ")
	p.waits(w)
	talkAll(1, p)
	assert.Equal(t, map[string][]place{"x ": {{"a", "1"}}}, p.lines)
}

func (q *queue) joinForTest(name string) (*lockQueue, *waiter) {
	q.max++
	return q.join(context.Background(), lease.AcquireRequest{Name: name, Holder: "h"})
}
