package leaseserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
)

// Peers are the other servers of the store. All of them receive the same messages in the same
// order, and so have the same queue of waiters for each lock:
//
//	hello SERVER                    it listens from now on, and does not know who waits
//	alive SERVER [DIGEST CLOCK]     each second, with a digest of its waiters that the others should know
//	wait  SERVER NUMBER LOCK        a request waits there
//	still SERVER NUMBER KEY LOCK    the same, and its place: for servers that missed it
//	leave SERVER NUMBER LOCK        it does not wait any more
//	free  SERVER NUMBER LOCK        the lock is free, and the turn of that request
//	again SERVER                    another server does not know who waits there
//	gone  SERVER                    it does not listen any more
//
// If a server has missed messages, because they were lost or it took their sender for dead, it
// detects that by the next digest, and asks. A server ignores messages that it does not understand,
// because a later version may send more.
//
// Any server that asks the store gets a free lock, whatever the messages said. A lost, late or
// wrong message costs time, at most a PollInterval.
type peers struct {
	messenger lease.Messenger // nil = the store has none
	queue     *queue
	logger    *slog.Logger
	id        string
	timeout   time.Duration
	some      chan struct{} // of size one: there is something to send

	mu     sync.Mutex
	number uint64          // the last that was given to a waiter of this server
	own    map[uint64]bool // its waiters that were announced; true = announced again, before it was received
	digest uint64          // of own
	others map[string]time.Time
	lines  lines                // of all servers; of this server's waiters, those whose messages it has received itself
	freed  map[string]time.Time // locks whose release was announced to nobody, because no waiter was known
	outbox
}

const (
	aliveEvery  = time.Second
	silentAfter = 5 * time.Second
	lateAfter   = 2 * time.Second // how late a waiter's first message may arrive
	listenPause = 5 * time.Second

	// These bound the memory that anybody who may send to the channel can fill.
	mostPlaces   = 100_000 // of waiters, and pending messages
	mostServers  = 1_000
	serverLength = 12
)

func newPeers(c *Config, q *queue) *peers {
	messenger, _ := c.Store.(lease.Messenger)
	return &peers{
		messenger: messenger, queue: q, logger: c.Logger, id: rand.Text()[:serverLength], timeout: c.StoreTimeout,
		some: make(chan struct{}, 1), own: make(map[uint64]bool), others: make(map[string]time.Time), lines: newLines(), freed: make(map[string]time.Time),
	}
}

// run listens and sends until ctx ends.
func (p *peers) run(ctx context.Context) {
	if p.messenger == nil {
		return
	}
	defer p.sayGone(ctx)
	for failures := 0; ; failures++ {
		err := p.talk(ctx, func() { failures = 0 })
		if ctx.Err() != nil {
			return
		}
		if failures == 0 {
			p.logger.LogAttrs(ctx, slog.LevelInfo, "peers_not_heard", slog.Any("error", err))
		}
		if pause.For(ctx, pause.Backoff(failures, time.Second, listenPause)) != nil {
			return
		}
	}
}

// talk listens and sends until the connection or ctx ends.
func (p *peers) talk(ctx context.Context, began func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	err := p.messenger.Listen(ctx, func() {
		began()
		p.say("hello", p.id)
		wg.Go(func() { p.send(ctx, cancel) })
	}, p.receive)
	if cause := context.Cause(ctx); errors.Is(cause, errDeaf) {
		err = cause
	}
	cancel(nil)
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for server := range p.others {
		p.lines.drop(server)
	}
	clear(p.others)
	p.outbox = outbox{}
	return err
}

// sayGone tells the others that this server ends, so that they need not wait until they take it for
// dead.
func (p *peers) sayGone(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(p.timeout, aliveEvery))
	defer cancel()
	_ = p.messenger.Send(ctx, []string{"gone " + p.id}) // else they detect it
}

// waits announces that a request of this server waits, if others need to know.
func (p *peers) waits(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitsLocked(w)
}

func (p *peers) waitsLocked(w *waiter) {
	if len(p.others) == 0 || w.number != 0 || w.left {
		return
	}
	p.number++
	w.number = p.number
	p.own[w.number] = false
	p.digest ^= digest(w.number)
	p.sayLocked("wait", p.id, w.text(), w.request.Name)
}

// repeat announces a waiting request, even if others know it already.
func (p *peers) repeat(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s, heard := p.lines.places[place{p.id, w.number}]; {
	case w.number == 0:
		p.waitsLocked(w)
	case w.left || len(p.others) == 0:
	case heard:
		p.sayLocked("still", p.id, w.text(), strconv.FormatUint(s.key, 10), s.name)
	default:
		p.own[w.number] = true
		p.sayLocked("wait", p.id, w.text(), w.request.Name)
	}
}

func (w *waiter) text() string { return strconv.FormatUint(w.number, 10) }

// left announces that a request does not wait any more. This server removes it at once, before it
// receives the message: the request may have got the lock, and release it next.
func (p *peers) left(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.left = true; w.number == 0 {
		return
	}
	delete(p.own, w.number)
	p.digest ^= digest(w.number)
	p.lines.leave(place{p.id, w.number})
	if len(p.others) > 0 {
		p.sayLocked("leave", p.id, w.text(), w.request.Name)
	}
}

// isElsewhere reports whether the first in the queue for a lock waits at another server.
func (p *peers) isElsewhere(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := p.lines.locks[name]
	return len(line) > 0 && line[0].server != p.id
}

// free notifies the first waiter at another server that a lock is free; false if there is none. A
// request may have asked the store before, and its message may arrive later: it is notified then.
func (p *peers) free(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.lines.locks[name] {
		if s.server != p.id {
			p.sayLocked("free", s.server, strconv.FormatUint(s.number, 10), name)
			return true
		}
	}
	if len(p.others) > 0 && len(p.freed) < mostPlaces {
		p.freed[name] = time.Now()
	}
	return false
}

// receive handles a message. It ignores anything else: anybody can send to the channel.
func (p *peers) receive(message string) {
	verb, rest, _ := strings.Cut(message, " ")
	server, rest, _ := strings.Cut(rest, " ")
	if server == "" || len(server) > serverLength {
		return
	}
	switch verb {
	case "hello":
		p.heard(server, true)
	case "alive":
		p.heard(server, false)
		p.compare(server, rest)
	case "wait", "still", "leave", "free":
		p.receiveOf(verb, server, rest)
	case "again":
		if server == p.id {
			p.announce()
		}
	case "gone":
		p.drop(server)
	}
}

// receiveOf handles a message about a request.
func (p *peers) receiveOf(verb, server, rest string) {
	text, name, _ := strings.Cut(rest, " ")
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return
	}
	at := place{server, number}
	switch verb {
	case "wait":
		p.heard(server, false) // the answer to a hello comes before the next alive
		p.enter(at, name, 0)
	case "still":
		text, name, _ = strings.Cut(name, " ")
		if key, err := strconv.ParseUint(text, 10, 64); err == nil && key > 0 && server != p.id { // this server has the keys of its own requests
			p.heard(server, false)
			p.enter(at, name, key)
		}
	case "leave":
		p.mu.Lock()
		if _, waits := p.own[number]; server != p.id || !waits {
			p.lines.leave(at)
		}
		p.mu.Unlock()
	case "free":
		p.queue.watches.change(name)
		if server == p.id && !p.queue.wake(name) {
			p.pass(at, name)
		}
	}
}

// pass gives the turn of a request that has left to the next one. The sender may have missed that
// it left, so pass announces that again. Else the turn would come back again and again.
func (p *peers) pass(at place, name string) {
	p.mu.Lock()
	p.lines.leave(at)
	p.sayLocked("leave", at.server, strconv.FormatUint(at.number, 10), name)
	p.mu.Unlock()
	p.free(name)
}

// heard records a server. A server that is new to this one gets this one's waiters.
func (p *peers) heard(server string, hello bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if server == p.id {
		p.unheard = time.Time{}
		return
	}
	_, known := p.others[server]
	if !known && len(p.others) >= mostServers {
		return
	}
	p.others[server] = time.Now()
	if hello {
		p.lines.drop(server)
	}
	if hello || !known {
		p.announceLocked()
	}
}

// compare asks a server for its waiters, if this server's view of them differs.
func (p *peers) compare(server, rest string) {
	var theirs, clock uint64
	if n, _ := fmt.Sscanf(rest, "%x %d", &theirs, &clock); n < 2 || server == p.id {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines.seen(clock)
	if _, known := p.others[server]; known && p.lines.digests[server] != theirs && len(p.lines.places) < mostPlaces {
		p.lines.drop(server)
		p.sayLocked("again", server)
	}
}

func (p *peers) enter(at place, name string, key uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.others[at.server]
	again := false
	if at.server == p.id {
		again, known = p.own[at.number]
	}
	if !known || len(p.lines.places) >= mostPlaces || lease.ValidateName(name) != nil {
		return
	}
	p.lines.enter(at, name, key)
	if again { // a server that began to listen meanwhile can have given it a key that others did not
		p.own[at.number] = false
		p.sayLocked("still", at.server, strconv.FormatUint(at.number, 10), strconv.FormatUint(p.lines.places[at].key, 10), name)
	}
	if _, free := p.freed[name]; free && at.server != p.id {
		delete(p.freed, name)
		p.sayLocked("free", at.server, strconv.FormatUint(at.number, 10), name)
	}
}

// drop forgets a server.
func (p *peers) drop(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.others[server]; known {
		delete(p.others, server)
		p.lines.drop(server)
	}
}

// forget drops servers that are silent, and locks that were free long ago.
func (p *peers) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for server, at := range p.others {
		if now.Sub(at) > silentAfter {
			delete(p.others, server)
			p.lines.drop(server)
		}
	}
	maps.DeleteFunc(p.freed, func(_ string, at time.Time) bool { return now.Sub(at) > lateAfter })
}
