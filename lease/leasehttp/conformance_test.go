package leasehttp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A remote is a store behind a server. Sweeps are the server's business alone, and
// the segments . and .. are no names for a URL: they travel as other dots.
//
// What it takes to check a history grows steeply with the calls that are under way
// at once, and calls over HTTP are slow. So of a crowd it carries only some at a time,
// and refuses the others as busy, as a store may.
type remote struct {
	*leasehttp.Client
	behind lease.Store
	room   chan struct{}
}

func (r remote) enter(name string) (leave func(), err error) {
	if !strings.HasPrefix(name, "contended-") {
		return func() {}, nil
	}
	select {
	case r.room <- struct{}{}:
		return func() { <-r.room }, nil
	default:
		return nil, &lease.BusyError{Retry: time.Millisecond, Cause: errors.New("a crowd")}
	}
}

const dot, otherDot = ".", "\u2024"

func travel(name string) string {
	segments := strings.Split(name, "/")
	for i, segment := range segments {
		if strings.Trim(segment, dot) == "" {
			segments[i] = strings.ReplaceAll(segment, dot, otherDot)
		}
	}
	return strings.Join(segments, "/")
}

func arrive(l lease.Lease, err error) (lease.Lease, error) {
	l.Name = strings.ReplaceAll(l.Name, otherDot, dot)
	return l, err
}

func (r remote) Acquire(ctx context.Context, q lease.AcquireRequest) (lease.Lease, error) {
	leave, err := r.enter(q.Name)
	if err != nil {
		return lease.Lease{}, err
	}
	defer leave()
	q.Name = travel(q.Name)
	l, err := arrive(r.Client.Acquire(ctx, q))
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		held.Name = strings.ReplaceAll(held.Name, otherDot, dot)
	}
	return l, err
}

func (r remote) Renew(ctx context.Context, q lease.RenewRequest) (lease.Lease, error) {
	leave, err := r.enter(q.Name)
	if err != nil {
		return lease.Lease{}, err
	}
	defer leave()
	return r.Client.Renew(ctx, q)
}

func (r remote) Release(ctx context.Context, c lease.Claim) error {
	leave, err := r.enter(c.Name)
	if err != nil {
		return err
	}
	defer leave()
	return r.Client.Release(ctx, c)
}

func (r remote) Get(ctx context.Context, name string) (lease.Record, error) {
	record, err := r.Client.Get(ctx, travel(name))
	record.Lease, err = arrive(record.Lease, err)
	return record, err
}

func (r remote) Sweep(ctx context.Context, q lease.SweepRequest) (lease.SweepResult, error) {
	return r.behind.Sweep(ctx, q)
}

// It is not parallel to the other tests: histories of calls that are slow because of
// them are costly to check.
func TestAClientAndItsServerAreAStore(t *testing.T) {
	leasetest.Run(t, leasetest.Harness{
		Precision: time.Millisecond,
		TTL:       time.Second,
		New: func(t *testing.T) lease.Store {
			t.Helper()
			store := leasetest.NewStore()
			_, h := serve(t, leasehttp.Config{Store: store})
			return remote{client(t, h, leasehttp.ClientConfig{}), store, make(chan struct{}, 10)}
		},
	})
}
