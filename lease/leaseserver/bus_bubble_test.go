package leaseserver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A bus carries the messages of servers in a bubble to all who listen, in one order.
type bus struct {
	mu   sync.Mutex
	ears map[chan string]struct{}
}

func (b *bus) carry(messages []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ear := range b.ears {
		for _, m := range messages {
			ear <- m
		}
	}
}

// A port is the store of one server of several: they share the leases and the bus.
type port struct {
	*leasetest.Store
	bus *bus

	mu   sync.Mutex
	send func(m []string) (delay time.Duration, carried bool, err error) // nil = no fault
	deaf func(m string) bool                                             // nil = it hears all
	cut  chan struct{}                                                   // closed = the connection is lost; nil = there is none
	mute time.Time                                                       // until then what it sends is lost
	sent []string
}

var errCut = errors.New("connection lost")

func (p *port) Listen(ctx context.Context, ready func(), receive func(string)) error {
	ear, cut := make(chan string, 1<<17), make(chan struct{})
	p.mu.Lock()
	p.cut = cut
	p.mu.Unlock()
	p.bus.mu.Lock()
	p.bus.ears[ear] = struct{}{}
	p.bus.mu.Unlock()
	defer func() {
		p.bus.mu.Lock()
		defer p.bus.mu.Unlock()
		delete(p.bus.ears, ear)
	}()
	ready()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-cut:
			return errCut
		case m := <-ear:
			p.mu.Lock()
			deaf := p.deaf
			p.mu.Unlock()
			if deaf == nil || !deaf(m) {
				receive(m)
			}
		}
	}
}

func (p *port) Send(ctx context.Context, messages []string) error {
	p.mu.Lock()
	fault := p.send
	mute := time.Now().Before(p.mute)
	p.sent = append(p.sent, messages...)
	p.mu.Unlock()
	delay, carried, err := time.Millisecond, true, error(nil)
	if fault != nil {
		delay, carried, err = fault(messages)
	}
	if mute {
		delay, carried, err = 2*time.Second, false, nil
	}
	if !sleep(ctx, delay) {
		return context.Cause(ctx)
	}
	if carried {
		p.bus.carry(messages)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// fault changes what becomes of messages.
func (p *port) fault(send func(m []string) (time.Duration, bool, error), deaf func(m string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send, p.deaf = send, deaf
}

// lose ends the connection on which the server listens.
func (p *port) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut != nil {
		close(p.cut)
		p.cut = nil
	}
}

// A town is some servers on one store, in a bubble.
type town struct {
	t       *testing.T
	store   *leasetest.Store
	ports   []*port
	servers []*Server
	stops   []context.CancelFunc
	served  chan string // the holders, in the order in which they got the lock
	wg      sync.WaitGroup
}

// inTown runs a test with n servers that know of each other.
func inTown(t *testing.T, n int, poll time.Duration, test func(*town)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := &town{t: t, store: leasetest.NewStore(), served: make(chan string, 1000)}
		b := &bus{ears: make(map[chan string]struct{})}
		for range n {
			x.add(b, poll)
		}
		x.settle(2 * time.Second)
		test(x)
		for _, stop := range x.stops {
			stop()
		}
		x.wg.Wait()
	})
}

func (x *town) add(b *bus, poll time.Duration) {
	x.t.Helper()
	p := &port{Store: x.store, bus: b}
	s, err := New(Config{Store: p, PollInterval: poll, MaxWait: time.Hour, Registry: prometheus.NewRegistry()})
	require.NoError(x.t, err)
	ctx, stop := context.WithCancel(x.t.Context())
	x.wg.Go(func() { s.Monitor(ctx) })
	x.ports, x.servers, x.stops = append(x.ports, p), append(x.servers, s), append(x.stops, stop)
}

func (x *town) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ask(holder string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: "job", Holder: holder, TTL: 10 * time.Hour}
}

func (x *town) acquire(server int) lease.Lease {
	x.t.Helper()
	l, _, err := x.servers[server].queue.acquire(x.t.Context(), ask("first"), 0)
	require.NoError(x.t, err)
	return l
}

func (x *town) release(server int, l lease.Lease) {
	x.t.Helper()
	require.NoError(x.t, x.servers[server].queue.release(x.t.Context(), l.Claim))
}

// waiter waits for job at a server, and releases it there at once when it has it.
func (x *town) waiter(server int, holder string) {
	x.wg.Go(func() {
		l, _, err := x.servers[server].queue.acquire(x.t.Context(), ask(holder), time.Hour)
		if assert.NoError(x.t, err, holder) {
			x.served <- holder
			x.release(server, l)
		}
	})
	x.settle(50 * time.Millisecond)
}

// order is who was served within d.
func (x *town) order(d time.Duration) (order []string) {
	x.settle(d)
	for {
		select {
		case holder := <-x.served:
			order = append(order, holder)
		default:
			return order
		}
	}
}
