package etcd_test

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

// A wire counts what a store sends, by method. A message on a stream counts as a request.
type wire struct {
	mu   sync.Mutex
	sent map[string]int
}

func (w *wire) count(method string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent == nil {
		w.sent = make(map[string]int)
	}
	w.sent[method[strings.LastIndex(method, "/")+1:]]++
}

func (w *wire) number(method string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[method]
}

// during returns what is sent while f runs.
func (w *wire) during(f func()) map[string]int {
	w.mu.Lock()
	w.sent = nil
	w.mu.Unlock()
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.sent)
}

func (w *wire) unary(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	w.count(method)
	return invoke(ctx, method, request, reply, cc, options...)
}

type wireStream struct {
	grpc.ClientStream
	wire   *wire
	method string
}

func (s wireStream) SendMsg(m any) error {
	s.wire.count(s.method)
	return s.ClientStream.SendMsg(m)
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, options...)
	return wireStream{stream, w, method}, err
}

func (w *wire) open(t *testing.T, address string) *etcd.Store {
	t.Helper()
	return open(t, func(c *etcd.Config) {
		c.Timeout = patience
		c.Client.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(w.unary), grpc.WithChainStreamInterceptor(w.stream)}
	}, address)
}

func ask(name, key string) lease.AcquireRequest {
	return lease.AcquireRequest{Name: name, Holder: "a", TTL: time.Minute, IdempotencyKey: key}
}

// The store need not read what it has written, so it reads only what others may have changed.
func TestTheNumberOfRequestsOfEachOperation(t *testing.T) {
	t.Parallel()
	var w wire
	s := w.open(t, serve(t, etcdtest.Member{NoFsync: true}))
	acquire := func() (l lease.Lease) {
		t.Helper()
		l, err := s.Acquire(t.Context(), ask("job", ""))
		require.NoError(t, err)
		return l
	}
	release := func(l lease.Lease) { require.NoError(t, s.Release(t.Context(), l.Claim)) }

	assert.Equal(t, map[string]int{"Range": 1, "LeaseGrant": 2, "Txn": 2}, w.during(func() {
		release(acquire())
		eventually(t, func() bool { return w.number("LeaseGrant") == 2 }, "no etcd lease is granted ahead")
	}), "the first cycle")
	assert.Equal(t, map[string]int{"LeaseKeepAlive": 10, "Txn": 20}, w.during(func() {
		for range 10 {
			release(acquire())
		}
	}), "ten cycles")

	l := acquire()
	assert.Equal(t, map[string]int{"LeaseKeepAlive": 1, "Txn": 1}, w.during(func() {
		_, err := s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Minute})
		require.NoError(t, err)
	}), "a renewal")
	for i := range 2 {
		sent := w.during(func() {
			var released, acquired error
			l, released, acquired = s.HandOver(t.Context(), lease.ReleaseRequest{Claim: l.Claim, IdempotencyKey: strconv.Itoa(i)}, ask("job", ""))
			require.NoError(t, released)
			require.NoError(t, acquired)
		})
		delete(sent, "LeaseGrant") // one may be granted ahead
		assert.Equal(t, map[string]int{"LeaseKeepAlive": 1, "Txn": 1}, sent, "a hand-over")
	}
	assert.Equal(t, map[string]int{"Range": 1, "LeaseTimeToLive": 1}, w.during(func() {
		_, err := s.Acquire(t.Context(), ask("job", ""))
		require.ErrorIs(t, err, lease.ErrHeld)
	}), "a refusal")
}

// What another store has changed is found out by the transaction, which reads it too.
func TestAStoreWhoseKnowledgeIsOutdatedDecidesByTheData(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true})
	var w wire
	s, other := w.open(t, address), open(t, nil, address)
	brief := lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Second}
	for name, c := range map[string]struct {
		others func(t *testing.T, name string, mine lease.Lease)
		then   func(t *testing.T, name string, mine lease.Lease)
		sends  map[string]int // "" = not checked
	}{
		"a lock that another took is held": {
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, s.Release(t.Context(), mine.Claim))
				_, err := other.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "b", TTL: time.Minute})
				require.NoError(t, err)
			},
			func(t *testing.T, name string, _ lease.Lease) {
				t.Helper()
				_, err := s.Acquire(t.Context(), ask(name, ""))
				e := new(lease.HeldError)
				require.ErrorAs(t, err, &e)
				assert.Equal(t, "b", e.Holder)
				assert.Greater(t, e.Remaining, 30*time.Second)
			},
			map[string]int{"LeaseKeepAlive": 1, "Txn": 1, "LeaseTimeToLive": 1},
		},
		"a lock that another took and gave back is free": {
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, s.Release(t.Context(), mine.Claim))
				cycle(t, other, name)
			},
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				l, err := s.Acquire(t.Context(), ask(name, ""))
				require.NoError(t, err)
				assert.EqualValues(t, mine.Token+2, l.Token)
			},
			map[string]int{"LeaseKeepAlive": 2, "Txn": 2},
		},
		"a lease that another store ended is not renewed or released": {
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, other.Release(t.Context(), mine.Claim))
				cycle(t, other, name)
			},
			func(t *testing.T, _ string, mine lease.Lease) {
				t.Helper()
				_, err := s.Renew(t.Context(), lease.RenewRequest{Claim: mine.Claim, TTL: time.Minute})
				require.ErrorIs(t, err, lease.ErrStale)
				require.ErrorIs(t, s.Release(t.Context(), mine.Claim), lease.ErrStale)
			},
			nil,
		},
		"a lease that another store released is released": {
			func(t *testing.T, _ string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, other.Release(t.Context(), mine.Claim))
			},
			func(t *testing.T, _ string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, s.Release(t.Context(), mine.Claim))
			},
			map[string]int{"Txn": 1},
		},
		"metadata that another store changed is kept": {
			func(t *testing.T, _ string, mine lease.Lease) {
				t.Helper()
				_, err := other.Renew(t.Context(), lease.RenewRequest{Claim: mine.Claim, TTL: time.Minute, Metadata: map[string]string{"a": "b"}})
				require.NoError(t, err)
			},
			func(t *testing.T, _ string, mine lease.Lease) {
				t.Helper()
				l, err := s.Renew(t.Context(), lease.RenewRequest{Claim: mine.Claim, TTL: time.Minute})
				require.NoError(t, err)
				assert.Equal(t, map[string]string{"a": "b"}, l.Metadata)
			},
			nil,
		},
		"a lock that was forgotten has a greater token": {
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, s.Release(t.Context(), mine.Claim))
				eventually(t, func() bool {
					_, err := other.Sweep(t.Context(), lease.SweepRequest{Retention: time.Millisecond})
					require.NoError(t, err)
					_, err = other.Get(t.Context(), name)
					return err != nil
				}, "it is not forgotten")
			},
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				l, err := s.Acquire(t.Context(), ask(name, ""))
				require.NoError(t, err)
				assert.Greater(t, l.Token, mine.Token)
			},
			map[string]int{"LeaseKeepAlive": 2, "Txn": 2},
		},
		"a release whose key another store has answered is answered again": {
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, other.ReleaseKeyed(t.Context(), lease.ReleaseRequest{Claim: mine.Claim, IdempotencyKey: "r"}))
				cycle(t, other, name)
			},
			func(t *testing.T, _ string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, s.ReleaseKeyed(t.Context(), lease.ReleaseRequest{Claim: mine.Claim, IdempotencyKey: "r"}))
				require.ErrorIs(t, s.Release(t.Context(), mine.Claim), lease.ErrStale)
			},
			nil,
		},
		"an acquire whose key another store has answered gets its lease": {
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, s.Release(t.Context(), mine.Claim))
				_, err := other.Acquire(t.Context(), ask(name, "k"))
				require.NoError(t, err)
			},
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				l, err := s.Acquire(t.Context(), ask(name, "k"))
				require.NoError(t, err)
				assert.EqualValues(t, mine.Token+1, l.Token)
				r, err := other.Get(t.Context(), name)
				require.NoError(t, err)
				assert.Equal(t, r.Claim, l.Claim)
			},
			map[string]int{"LeaseKeepAlive": 1, "Txn": 1, "LeaseTimeToLive": 1},
		},
		"a lease that expired is not renewed, and its lock is free": {
			func(t *testing.T, name string, mine lease.Lease) {
				t.Helper()
				require.NoError(t, s.Release(t.Context(), mine.Claim))
				r := brief
				r.Name = name
				_, err := s.Acquire(t.Context(), r)
				require.NoError(t, err)
				eventually(t, func() bool {
					r, err := other.Get(t.Context(), name)
					require.NoError(t, err)
					return r.State == lease.Expired
				}, "it does not expire")
			},
			func(t *testing.T, name string, _ lease.Lease) {
				t.Helper()
				r, err := other.Get(t.Context(), name)
				require.NoError(t, err)
				_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: r.Claim, TTL: time.Minute})
				require.ErrorIs(t, err, lease.ErrExpired)
				require.ErrorIs(t, s.Release(t.Context(), r.Claim), lease.ErrExpired)
				_, err = s.Acquire(t.Context(), ask(name, ""))
				require.NoError(t, err)
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			mine, err := s.Acquire(t.Context(), ask(name, ""))
			require.NoError(t, err)
			c.others(t, name, mine)
			sent := w.during(func() { c.then(t, name, mine) })
			if c.sends != nil {
				delete(sent, "LeaseGrant") // one may be granted ahead
				assert.Equal(t, c.sends, sent)
			}
		})
	}
}

// spare makes a store have some spare etcd leases.
func spare(t *testing.T, s *etcd.Store) {
	t.Helper()
	var all []lease.Lease
	for i := range 4 {
		l, err := s.Acquire(t.Context(), ask("spare/"+strconv.Itoa(i), ""))
		require.NoError(t, err)
		all = append(all, l)
	}
	for _, l := range all {
		require.NoError(t, s.Release(t.Context(), l.Claim))
	}
}

// A hand-over that was prepared is one transaction. A preparation that was canceled leaves its etcd
// lease to later operations.
func TestAPreparedHandOverIsOneTransaction(t *testing.T) {
	t.Parallel()
	var w wire
	address := serve(t, etcdtest.Member{NoFsync: true})
	s := w.open(t, address)
	spare(t, s)
	l, err := s.Acquire(t.Context(), ask("job", ""))
	require.NoError(t, err)
	next := ask("job", "next")

	handOver, _, err := s.PrepareHandOver(t.Context(), next)
	require.NoError(t, err)
	sent := w.during(func() {
		got, released, acquired := handOver(t.Context(), lease.ReleaseRequest{Claim: l.Claim})
		require.NoError(t, released)
		require.NoError(t, acquired)
		assert.Equal(t, l.Token+1, got.Token)
		l = got
	})
	delete(sent, "LeaseGrant") // one may be granted ahead
	assert.Equal(t, map[string]int{"Txn": 1}, sent)

	client := raw(t, clientv3.Config{Endpoints: []string{address}})
	leases := func() int {
		r, err := client.Leases(t.Context())
		require.NoError(t, err)
		return len(r.Leases)
	}
	before := leases()
	for range 20 {
		_, cancel, err := s.PrepareHandOver(t.Context(), next)
		require.NoError(t, err)
		cancel()
	}
	assert.LessOrEqual(t, leases(), before+1)

	next.LockDelay = time.Minute
	handOver, cancel, err := s.PrepareHandOver(t.Context(), next)
	require.NoError(t, err)
	assert.Nil(t, handOver)
	assert.Nil(t, cancel)
}

// The leader that renewed an etcd lease can have been replaced before the hand-over. Its successor
// counts that etcd lease from another time, so the hand-over gets another one.
func TestAPreparationUnderAnotherLeaderOfEtcdIsNotUsed(t *testing.T) {
	t.Parallel()
	var c terms
	var w wire
	s := open(t, func(config *etcd.Config) {
		config.Client.DialOptions = []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(w.unary, c.unary), grpc.WithChainStreamInterceptor(w.stream, c.stream),
		}
	}, serve(t, etcdtest.Member{NoFsync: true}))
	for _, changes := range []bool{false, true} {
		spare(t, s)
		l, err := s.Acquire(t.Context(), ask("job", ""))
		require.NoError(t, err)
		handOver, _, err := s.PrepareHandOver(t.Context(), ask("job", "next"))
		require.NoError(t, err)
		if changes {
			c.later.Add(1)
			cycle(t, s, "other") // the store learns of it
		}
		sent := w.during(func() {
			got, released, acquired := handOver(t.Context(), lease.ReleaseRequest{Claim: l.Claim})
			require.NoError(t, released)
			require.NoError(t, acquired)
			l = got
		})
		if changes {
			assert.Positive(t, sent["LeaseGrant"]+sent["LeaseKeepAlive"])
		} else {
			assert.Zero(t, sent["LeaseKeepAlive"], "the control")
		}
		require.NoError(t, s.Release(t.Context(), l.Claim))
	}
}
