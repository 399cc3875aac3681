package leaseserver

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/lease"
)

// newTestPeers is a server that has heard itself.
func newTestPeers(id string) *peers {
	p := newPeers(&Config{}, newQueue(&Config{}, nil))
	p.queue.peers = p
	p.id = id
	p.receive("hello " + id)
	return p
}

// takeAll returns what a server says, and takes it for sent.
func (p *peers) takeAll() (all []string) {
	for {
		messages, taken := p.next()
		if len(messages) == 0 {
			return all
		}
		p.sent(taken, taken < len(messages), nil)
		all = append(all, messages...)
	}
}

// talkAll lets servers hear what all of them say, until nobody says anything or after so many
// rounds; it returns how many those were.
func talkAll(rounds int, all ...*peers) int {
	for round := range rounds {
		var messages []string
		for _, p := range all {
			messages = append(messages, p.takeAll()...)
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

// order is who waits where.
func (p *peers) order() map[string][]place {
	all := make(map[string][]place)
	for name, line := range p.lines.locks {
		for _, s := range line {
			all[name] = append(all[name], s.place)
		}
	}
	return all
}

// A server that begins to listen hears the others before itself. One of another version says what
// this one does not know, and does not say what it does.
func TestMessagesMayComeInAnyOrderAndInPieces(t *testing.T) {
	t.Parallel()
	for _, first := range []string{
		"leave other 1 x", "wait other 1 x", "free other 1 x", "alive other", "hello other", "leave", "wait  ", "", "nonsense other 1 x",
		"still other 1 x", "still other 1 0 x", "still other 1", "still other -1 -1 x", "alive other zz yy", "alive other 1", "again other", "gone other", "gone",
		"wait other 99999999999999999999 x", "wait2 other 1 2 3 x", "alive other 0 0 and more",
	} {
		p := newPeers(&Config{}, newQueue(&Config{}, nil))
		p.queue.peers = p
		p.receive(first)
		for _, message := range []string{"hello " + p.id, "hello other", "wait other 1 x", "wait other 2 x", "leave other 1 x", "leave other 1 x", "leave other 7 y"} {
			p.receive(message)
		}
		assert.Equal(t, map[string][]place{"x": {{"other", 2}}}, p.order(), first)
		assert.Len(t, p.lines.places, 1, first)
	}
}

func TestAServerThatBeginsLearnsOfThoseWhoWait(t *testing.T) {
	t.Parallel()
	old := newTestPeers("old")
	old.receive("alive other")
	_, w := old.queue.joinForTest("x")
	old.waits(w)
	old.takeAll() // before the new one listened
	fresh := newTestPeers("new")
	old.receive("hello new")
	old.announced = old.announced.AddDate(-1, 0, 0)
	talkAll(10, old, fresh)
	assert.Equal(t, map[string][]place{"x": {{"old", 1}}}, fresh.order())
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
		assert.Empty(t, p.order())
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
		p.receive(fmt.Sprintf("alive %d 1 1", i))
	}
	assert.LessOrEqual(t, len(p.others), mostServers)
	assert.LessOrEqual(t, len(p.out), mostPlaces)
	p.receive("hello b")
	for _, m := range []string{"wait " + strings.Repeat("b", 99) + " 1 x", "wait b " + strings.Repeat("1", 99) + " x"} {
		p.receive(m)
		p.receive(strings.Replace(m, "wait", "hello", 1))
		p.receive(m)
	}
	assert.Empty(t, p.order())
	p.receive("gone 0")
	p.receive("hello b")
	for i := range mostPlaces + 10 {
		p.receive(fmt.Sprintf("wait b %d %d", i, i))
	}
	assert.Len(t, p.lines.places, mostPlaces)
	assert.Len(t, p.lines.locks, mostPlaces)
	p.receive("gone b")
	assert.Empty(t, p.lines.places)
	assert.Empty(t, p.lines.digests)
}

func TestTheGreatestKeyIsNotTheEndOfTheLine(t *testing.T) {
	t.Parallel()
	p := newTestPeers("a")
	for _, m := range []string{"hello b", "wait b 1 x", fmt.Sprintf("alive b 0 %d", uint64(math.MaxUint64)), "wait b 2 x", "wait b 3 x", "leave b 2 x"} {
		p.receive(m)
	}
	assert.Equal(t, map[string][]place{"x": {{"b", 3}}}, p.order(), "the digest was another, so 1 is to be said again")
}

// Its first wait was on the way when the new server began to listen, which knew no keys yet.
func TestAServerThatBeginsToListenHasTheOrderOfTheOthers(t *testing.T) {
	t.Parallel()
	a, b, c := newTestPeers("a"), newTestPeers("b"), newTestPeers("c")
	later := func() {
		for _, p := range []*peers{a, b, c} {
			p.mu.Lock()
			p.announced = p.announced.Add(-aliveEvery)
			p.mu.Unlock()
		}
	}
	wait := func(p *peers, name string) {
		_, w := p.queue.joinForTest(name)
		p.waits(w)
	}
	a.receive("alive b")
	b.receive("alive a")
	wait(b, "y")
	wait(b, "x")
	talkAll(10, a, b)
	later()
	wait(a, "x")
	messages := append([]string{"hello c"}, a.takeAll()...)
	a.receive("hello c")
	messages = append(messages, a.takeAll()...)
	for i, m := range messages {
		for _, p := range []*peers{a, b, c} {
			if i > 0 || p == b {
				p.receive(m)
			}
		}
	}
	for range 3 {
		later()
		talkAll(10, a, b, c)
	}
	for _, p := range []*peers{a, b, c} {
		assert.Equal(t, []place{{"b", 2}, {"a", 1}}, p.order()["x"], p.id)
	}
}

func TestSetsOfTwoWaitersHaveDifferentDigests(t *testing.T) {
	t.Parallel()
	seen := make(map[uint64]bool)
	const most = 300
	for b := range uint64(most) {
		for a := range b {
			seen[digest(a+1)^digest(b+1)] = true
		}
	}
	assert.Equal(t, most*(most-1)/2, len(seen)) //nolint:testifylint // a failure does not print them all
}

// The numbers are those of waiters that one hash or another took for nobody.
func TestAServerAsksWhoWaitsIfItMissedAll(t *testing.T) {
	t.Parallel()
	a, b := newTestPeers("a"), newTestPeers("b")
	a.receive("alive b")
	b.receive("alive a")
	stays := map[int]bool{1: true, 3: true, 34: true, 36: true}
	for number := 1; number <= 36; number++ {
		_, w := a.queue.joinForTest("x")
		if a.waits(w); !stays[number] {
			a.left(w)
		}
	}
	for _, m := range a.takeAll() {
		a.receive(m)
	}
	a.mu.Lock()
	a.alive = true
	a.mu.Unlock()
	said := a.takeAll()
	b.receive(said[len(said)-1])
	assert.Contains(t, b.takeAll(), "again a")
}

// Nobody can say of this server's waiters that they have left, or how they stand.
func TestAServerKnowsBestWhoWaitsThere(t *testing.T) {
	t.Parallel()
	p := newTestPeers("a")
	p.receive("alive b")
	for range 2 {
		_, w := p.queue.joinForTest("x")
		p.waits(w)
	}
	talkAll(1, p)
	for _, m := range []string{"leave a 1 x", "wait a 3 x", "still a 2 1 x", "alive a 77 1", "gone a", "hello a"} {
		p.receive(m)
	}
	assert.Equal(t, map[string][]place{"x": {{"a", 1}, {"a", 2}}}, p.order())
}

func TestALockWhoseNameEndsInASpaceIsThatLock(t *testing.T) {
	t.Parallel()
	p := newTestPeers("a")
	p.receive("alive b")
	_, w := p.queue.joinForTest("x ")
	p.waits(w)
	talkAll(1, p)
	assert.Equal(t, map[string][]place{"x ": {{"a", 1}}}, p.order())
}

func (q *queue) joinForTest(name string) (*lockQueue, *waiter) {
	q.max++
	return q.join(context.Background(), lease.AcquireRequest{Name: name, Holder: "h"})
}
