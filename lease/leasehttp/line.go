package leasehttp

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A line makes batches of the calls that the goroutines of a client send to one server at the same
// time. While a batch or some plain requests are under way, other sendings gather, and go out
// together in the next batch. A sending that finds few under way, or that no other joins, is a
// plain request. After a server has refused a batch, each sending is a plain request for a while.
type line struct {
	server *transport
	goFunc func(func()) bool // starts a goroutine; false = the client is closed

	mu      sync.Mutex
	waiting []*sending
	flying  int           // plain requests under way that are not overdue; a batch counts as mostAlone
	plain   *lease.Moment // until then all requests are plain; nil = none was refused
}

// The kinds of calls that can share a request. Acquires can take long, such as those that wait for a
// holder, or for guarded writes in PostgreSQL. They delay no renewal and no release, because they have a line of
// their own.
type lineKind int

const (
	noLine lineKind = iota
	lineOfAcquires
	lineOfClaims // renewals and releases
	lineKinds
)

const (
	// mostAlone is how many plain requests of a line are under way before others gather. A batch
	// counts as that many.
	mostAlone = 4

	// patience is how long a request under way makes others gather. Then they go out without it.
	patience = 25 * time.Millisecond

	// gatherTurns is how often, at most, a line lets other goroutines run after a batch was answered.
	// Those that continue at once can then share the next batch. The line never waits for one.
	gatherTurns = 16

	// maxBody bounds the size in bytes of a batch, below a server's default limit.
	maxBody = 192 << 10

	// plainFor is how long all requests are plain after a server has refused a batch, as one of
	// an earlier version does.
	plainFor = time.Minute

	// perOperation bounds the bytes that an operation of a batch has in addition to its body and
	// its name.
	perOperation = 32

	verbAcquire = "acquire"
	verbRenew   = "renew"
	verbRelease = "release"
)

// A sending is one sending of a call.
type sending struct {
	ctx     context.Context // of its caller
	call    *call
	data    []byte // the body of the plain request
	lock    []byte // the name, in JSON
	timeout time.Duration
	size    int
	turn    chan turn // of size one
}

// A turn is the answer to a sending of a batch, or says that its goroutine has to send it alone.
type turn struct {
	alone  bool
	flight *flight
	answer answer
	err    error
}

// A flight is a request under way; nil = one that no others wait for.
type flight struct {
	weight int
	over   bool // it has landed, or is overdue
	timer  *time.Timer
}

func newLine(server *transport, goFunc func(func()) bool) *line {
	return &line{server: server, goFunc: goFunc}
}

// send does what transport.send does, alone or together with others. A call that waits asks together
// with others whether its lock is free. If it is not, it waits alone, for longer than the timeout.
func (l *line) send(ctx context.Context, k *call, data []byte, timeout time.Duration) (answer, error) {
	start := time.Now()
	f, s := l.enter(ctx, k, data, timeout)
	if s != nil {
		t, err := l.await(s)
		if err != nil {
			return answer{}, err
		}
		if cause := context.Cause(ctx); t.err != nil && cause != nil { // of the caller, not of the batch
			return answer{}, cause
		}
		if !t.alone {
			return t.answer, t.err
		}
		f = t.flight
	}
	defer l.land(f)
	wait := k.wait()
	return l.server.send(ctx, k.method, k.target(wait), data, max(timeout-time.Since(start), time.Millisecond)+wait)
}

// enter returns a flight if the sending can go at once, alone. Else it returns the sending, which
// waits for its turn. If it returns neither, the line cannot be used.
func (l *line) enter(ctx context.Context, k *call, data []byte, timeout time.Duration) (*flight, *sending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer k.gathering.arrive(l)
	switch {
	case l.isPlain():
		return nil, nil
	case l.flying < mostAlone && len(l.waiting) == 0:
		return l.start(1), nil
	}
	s := newSending(ctx, k, data, timeout)
	if s.size > maxBody {
		return nil, nil
	}
	l.waiting = append(l.waiting, s)
	return nil, s
}

func newSending(ctx context.Context, k *call, data []byte, timeout time.Duration) *sending {
	s := &sending{ctx: ctx, call: k, data: data, timeout: timeout, turn: make(chan turn, 1)}
	s.lock, _ = json.Marshal(k.name) //nolint:errchkjson // a string
	s.size = len(data) + len(s.lock) + perOperation
	return s
}

// isPlain reports whether all requests are plain. It is called with mu held.
func (l *line) isPlain() bool { return l.plain != nil && !l.plain.Passed() }

// A gathering is several calls that come at the same time. They share requests from the first on,
// because the line holds back what arrives until all of them are there, or until patience is
// over.
type gathering struct {
	line    *line
	flight  *flight // for which the others gather
	missing int     // guarded by mu of the line
}

// gather announces n calls. nil = they need not wait for each other.
func (l *line) gather(n int) *gathering {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 2 || l.isPlain() {
		return nil
	}
	return &gathering{l, l.start(mostAlone), n}
}

// arrive counts a sending that has entered l. It is called with mu of l held.
func (g *gathering) arrive(l *line) {
	if g == nil || g.line != l {
		return
	}
	if g.missing--; g.missing == 0 {
		g.flight.timer.Stop()
		l.finish(g.flight)
	}
}

// await returns the turn of a sending, or an error if its context or its time ends before.
func (l *line) await(s *sending) (turn, error) {
	bounded, cancel := context.WithTimeoutCause(s.ctx, s.timeout, errNoAnswer)
	defer cancel()
	select {
	case t := <-s.turn:
		return t, nil
	case <-bounded.Done():
	}
	l.drop(s)
	select {
	case t := <-s.turn: // a flight waits for it
		return t, nil
	default:
		return turn{}, context.Cause(bounded)
	}
}

// drop removes a sending that waits.
func (l *line) drop(s *sending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(other *sending) bool { return other == s })
}

// start begins a flight. It is called with mu held.
func (l *line) start(weight int) *flight {
	l.flying += weight
	f := &flight{weight: weight}
	f.timer = time.AfterFunc(patience, func() { l.end(f) })
	return f
}

// land ends a flight that was answered.
func (l *line) land(f *flight) {
	if f != nil {
		f.timer.Stop()
		l.end(f)
	}
}

// end sends the calls that gathered during a flight.
func (l *line) end(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish(f)
}

// finish is end for callers that hold mu.
func (l *line) finish(f *flight) {
	if f.over {
		return
	}
	f.over = true
	l.flying -= f.weight
	for l.flying < mostAlone && len(l.waiting) > 0 {
		l.next()
	}
}

// next begins a flight of sendings that wait. It is called with mu held.
func (l *line) next() {
	group, repeated := l.take()
	for _, s := range repeated {
		s.turn <- turn{alone: true}
	}
	if len(group) == 1 {
		group[0].turn <- turn{alone: true, flight: l.start(1)}
		return
	}
	f := l.start(mostAlone)
	if l.goFunc(func() { l.fly(f, group) }) {
		return
	}
	f.timer.Stop()
	f.over = true
	l.flying -= f.weight
	for _, s := range group {
		s.turn <- turn{alone: true}
	}
}

// take removes sendings that fit into one batch, the oldest first. A lock is in a batch once,
// because operations on one lock wait for each other there. The others on it are repeated: they go
// alone, at the same time. take is called with mu held.
func (l *line) take() (group, repeated []*sending) {
	size, n := 0, 0
	locks := make(map[string]bool, len(l.waiting))
	for _, s := range l.waiting {
		if locks[s.call.name] {
			repeated = append(repeated, s)
			n++
			continue
		}
		size += s.size
		if len(group) == wire.MaxBatch || len(group) > 0 && size > maxBody {
			break
		}
		locks[s.call.name] = true
		group = append(group, s)
		n++
	}
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil // releases the memory of those that were taken
	}
	return group, repeated
}

func (l *line) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}
