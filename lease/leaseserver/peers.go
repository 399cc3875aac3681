package leaseserver

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// Peers are the other servers of the store. All of them hear the same messages in the
// same order, and so have the same line of waiters for each lock:
//
//	hello SERVER               it listens from now on, and does not know who waits
//	alive SERVER               each second
//	wait SERVER NUMBER LOCK    a request waits there
//	leave SERVER NUMBER LOCK   it does not any more
//	free SERVER NUMBER LOCK    the lock is free, and the turn of that request
//
// A lock is free for whoever asks the store, whatever was said: that a message is lost,
// late or wrong costs time, at most a PollInterval.
type peers struct {
	messenger lease.Messenger // nil = the store has none
	queue     *queue
	logger    *slog.Logger
	id        string
	timeout   time.Duration

	mu      sync.Mutex
	number  uint64
	others  map[string]time.Time // when they were heard last; nil = nothing is heard
	lines   map[string][]place
	waiting int // in all lines
	out     []string
	some    chan struct{} // of size one: there is something to send
}

// A place is that of a request in the line for a lock.
type place struct{ server, number string }

const (
	aliveEvery  = time.Second
	silentAfter = 5 * time.Second
	listenPause = 30 * time.Second

	// So that nobody who may send to the channel fills the memory.
	mostPlaces   = 100_000 // of waiters, and messages that are to be sent
	mostServers  = 1_000
	serverLength = 12
	numberLength = 20
)

func newPeers(c *Config, q *queue) *peers {
	messenger, _ := c.Store.(lease.Messenger)
	return &peers{messenger: messenger, queue: q, logger: c.Logger, id: rand.Text()[:serverLength], timeout: c.StoreTimeout, some: make(chan struct{}, 1)}
}

// run listens and sends until ctx ends.
func (p *peers) run(ctx context.Context) {
	if p.messenger == nil {
		return
	}
	for failures := 0; ; failures++ {
		err := p.talk(ctx, func() { failures = 0 })
		if ctx.Err() != nil {
			return
		}
		if failures == 0 {
			p.logger.LogAttrs(ctx, slog.LevelInfo, "peers_not_heard", slog.Any("error", err))
		}
		if pause.For(ctx, wire.Jitter(min(time.Second<<min(failures, 5), listenPause))) != nil {
			return
		}
	}
}

// talk listens and sends until the connection or ctx ends.
func (p *peers) talk(ctx context.Context, began func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	err := p.messenger.Listen(ctx, func() {
		began()
		p.say("hello", p.id, "")
		wg.Go(func() { p.send(ctx) })
	}, p.receive)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.others, p.lines, p.waiting, p.out = nil, nil, 0, nil
	return err
}

// send sends what there is to say, and each second that this server is alive.
func (p *peers) send(ctx context.Context) {
	ticker := time.NewTicker(aliveEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.some:
		case <-ticker.C:
			p.forget(time.Now().Add(-silentAfter))
			p.say("alive", p.id, "")
		}
		p.mu.Lock()
		messages := p.out
		p.out = nil
		p.mu.Unlock()
		if len(messages) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, p.timeout)
		if err := p.messenger.Send(bounded, messages); err != nil && ctx.Err() == nil {
			p.logger.LogAttrs(ctx, slog.LevelDebug, "peers_not_told", slog.Any("error", err))
		}
		cancel()
	}
}

func (p *peers) say(verb, server, rest string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sayLocked(verb, server, rest)
}

func (p *peers) sayLocked(verb, server, rest string) {
	if len(p.out) >= mostPlaces {
		return
	}
	message := verb + " " + server
	if rest != "" {
		message += " " + rest
	}
	p.out = append(p.out, message)
	select {
	case p.some <- struct{}{}:
	default:
	}
}

// waits says that a request of this server waits, if others are to know.
func (p *peers) waits(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitsLocked(w)
}

func (p *peers) waitsLocked(w *waiter) {
	if len(p.others) == 0 || w.number != "" || w.left {
		return
	}
	p.number++
	w.number = strconv.FormatUint(p.number, 10)
	p.sayLocked("wait", p.id, w.number+" "+w.request.Name)
}

// left says that a request does not wait any more. Here that is so before it is heard: the
// request can have got the lock, and release it next.
func (p *peers) left(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.left = true; w.number != "" && p.others != nil {
		p.removeLocked(w.request.Name, func(l place) bool { return l == place{p.id, w.number} })
		p.sayLocked("leave", p.id, w.number+" "+w.request.Name)
	}
}

// isElsewhere reports whether the first in the line for a lock waits at another server.
func (p *peers) isElsewhere(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := p.lines[name]
	return len(line) > 0 && line[0].server != p.id
}

// free tells the first who waits for a lock at another server that it is free; false
// if nobody does.
func (p *peers) free(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines[name] {
		if l.server != p.id {
			p.sayLocked("free", l.server, l.number+" "+name)
			return true
		}
	}
	return false
}

// pass gives the turn of a request that has left to the next one. Whoever sent it can have
// missed that it left: it is said again, or the turn would come back for ever.
func (p *peers) pass(at place, name string) {
	p.leave(at, name)
	p.say("leave", at.server, at.number+" "+name)
	p.free(name)
}

// receive takes a message. What is none is passed over: anybody can send to the channel.
func (p *peers) receive(message string) {
	verb, rest, _ := strings.Cut(message, " ")
	server, rest, _ := strings.Cut(rest, " ")
	number, name, _ := strings.Cut(rest, " ")
	at := place{server, number}
	if len(server) > serverLength || len(number) > numberLength {
		return
	}
	switch verb {
	case "hello", "alive":
		p.heard(server, verb == "hello")
	case "wait":
		p.heard(server, false) // the answer to a hello comes before the next alive
		p.enter(at, name)
	case "leave":
		p.leave(at, name)
	case "free":
		if server == p.id && !p.queue.wake(name) {
			p.pass(at, name)
		}
	}
}

// heard notes a server. One that is new to this one learns who waits here.
func (p *peers) heard(server string, hello bool) {
	p.mu.Lock()
	if p.others == nil {
		p.others, p.lines = make(map[string]time.Time), make(map[string][]place)
	}
	if server == p.id || server == "" {
		p.mu.Unlock()
		return
	}
	_, known := p.others[server]
	if !known && len(p.others) >= mostServers {
		p.mu.Unlock()
		return
	}
	p.others[server] = time.Now()
	p.mu.Unlock()
	if hello {
		p.drop(server)
	}
	if hello || !known {
		p.queue.eachWaiter(p.again)
	}
}

// again says of a request that waits that it does, also if others know.
func (p *peers) again(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.number != "" && !w.left && p.others != nil {
		p.sayLocked("wait", p.id, w.number+" "+w.request.Name)
	}
	p.waitsLocked(w)
}

func (p *peers) enter(at place, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lines == nil || p.waiting >= mostPlaces || lease.ValidateName(name) != nil || slices.Contains(p.lines[name], at) {
		return
	}
	if _, known := p.others[at.server]; !known && at.server != p.id {
		return
	}
	p.lines[name] = append(p.lines[name], at)
	p.waiting++
}

func (p *peers) leave(at place, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(name, func(l place) bool { return l == at })
}

// drop forgets who waits at a server.
func (p *peers) drop(server string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.lines {
		p.removeLocked(name, func(l place) bool { return l.server == server })
	}
}

// forget drops servers that were not heard since then.
func (p *peers) forget(since time.Time) {
	p.mu.Lock()
	var silent []string
	for server, at := range p.others {
		if at.Before(since) {
			silent = append(silent, server)
			delete(p.others, server)
		}
	}
	p.mu.Unlock()
	for _, server := range silent {
		p.drop(server)
	}
}

func (p *peers) removeLocked(name string, gone func(place) bool) {
	line, ok := p.lines[name]
	if !ok {
		return // also before this server has heard itself
	}
	rest := slices.DeleteFunc(line, gone)
	p.waiting -= len(line) - len(rest)
	if p.lines[name] = rest; len(rest) == 0 {
		delete(p.lines, name)
	}
}
