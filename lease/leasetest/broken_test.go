package leasetest_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/broken"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A faulty store is right but for what its kind changes.
type faulty struct {
	*leasetest.Store
	kind  string
	board *board
	last  atomic.Pointer[string] // the key of the last release; nil = there was none
}

func (b *faulty) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	switch b.kind {
	case "keys are ignored":
		r.IdempotencyKey = ""
	case "delays are ignored":
		r.LockDelay = 0
	case "minimum holds are ignored":
		r.MinHold = 0
	case "lifetimes are ignored":
		r.MaxLifetime = 0
	case "metadata is dropped":
		r.Metadata = nil
	case "names are folded":
		r.Name = strings.ToLower(r.Name)
	case "acquiring needs a sweep":
		if record, err := b.Get(ctx, r.Name); err == nil && record.State == lease.Expired {
			return lease.Lease{}, &lease.HeldError{Name: r.Name, Holder: record.Holder, Remaining: 1, Retry: 1}
		}
	}
	l, err := b.Store.Acquire(ctx, r)
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		switch b.kind {
		case "everybody holds":
			l, err = lease.Lease{Claim: lease.Claim{Name: r.Name, Holder: r.Holder, ID: "x", Token: 1}}, nil
		case "retries are not jittered":
			held.Retry = min(held.Remaining, time.Second)
		}
	}
	return l, err
}

func (b *faulty) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	if b.kind == "renewals go by token" {
		if record, err := b.Get(ctx, r.Name); err == nil && record.Token == r.Token {
			r.Claim = record.Claim
		}
	}
	if b.kind == "renewals know no metadata" {
		r.Metadata = nil
	}
	l, err := b.Store.Renew(ctx, r)
	if b.kind == "what remains is the TTL" && err == nil {
		l.Remaining = r.TTL
	}
	return l, err
}

func (b *faulty) Release(ctx context.Context, c lease.Claim) error {
	if b.kind == "releases go by holder" {
		if record, err := b.Get(ctx, c.Name); err == nil && record.Holder == c.Holder {
			c = record.Claim
		}
	}
	record, _ := b.Get(ctx, c.Name)
	err := b.Store.Release(ctx, c)
	if b.kind == "a release works once" && err == nil && record.State == lease.Free {
		return &lease.NotFoundError{Name: c.Name}
	}
	return err
}

func (b *faulty) ReleaseKeyed(ctx context.Context, r lease.ReleaseRequest) error {
	key := r.IdempotencyKey
	switch b.kind {
	case "keys of releases are forgotten":
		r.IdempotencyKey = ""
	case "any key of a release will do":
		r.IdempotencyKey = "any"
	case "keys of releases are cut":
		r.IdempotencyKey = key[:min(len(key), 3)]
	case "a release is known by its key alone":
		if last := b.last.Load(); last != nil && *last == key && key != "" {
			return nil
		}
	}
	err := b.Store.ReleaseKeyed(ctx, r)
	if err == nil {
		b.last.Store(&key)
	}
	return err
}

func (b *faulty) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	if b.kind == "hand-overs keep no keys of releases" {
		r.IdempotencyKey = ""
	}
	return b.Store.HandOver(ctx, r, next)
}

func (b *faulty) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	if b.kind == "a list begins at after" {
		return func(yield func(lease.Record, error) bool) {
			if record, err := b.Get(ctx, r.After); err == nil && !yield(record, nil) {
				return
			}
			b.Store.List(ctx, r)(yield)
		}
	}
	return b.Store.List(ctx, r)
}

func (b *faulty) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	result, err := b.Store.Sweep(ctx, r)
	if b.kind == "a forgotten name begins again" && result.Removed > 0 {
		b.Store = leasetest.NewStore() // in that test nothing else is stored then
	}
	return result, err
}

func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	broken.Run(t, run, map[string]string{
		"everybody holds":                          "race: of many",
		"acquiring needs a sweep":                  "acquire: an expired lease",
		"names are folded":                         "acquire: names that differ",
		"metadata is dropped":                      "acquire: a free name",
		"renewals know no metadata":                "metadata: a renewal changes it",
		"retries are not jittered":                 "acquire: the recommended retry",
		"keys are ignored":                         "idempotency: the same request gets",
		"delays are ignored":                       "LockDelay is told",
		"minimum holds are ignored":                "MinHold is told",
		"lifetimes are ignored":                    "MaxLifetime bounds the first",
		"renewals go by token":                     "renew: a claim that does not match",
		"what remains is the TTL":                  "renew: a renewal does not shorten",
		"releases go by holder":                    "release: a stale holder",
		"a release works once":                     "release: releasing once more",
		"keys of releases are forgotten":           "resend: a release with its key",
		"any key of a release will do":             "resend: after another key",
		"keys of releases are cut":                 "resend: after another key",
		"a release is known by its key alone":      "resend: after another key",
		"hand-overs keep no keys of releases":      "resend: a hand-over",
		"a list begins at after":                   "list: names come",
		"a forgotten name begins again":            "tokens and versions",
		"it forgets when it restarts":              "reopen: everything",
		"messages of one sending are turned round": "messages: all who listen",
		"long messages are cut":                    "messages: each is any text",
		"old messages are heard":                   "messages: what was sent before",
		"the end of a listener is none":            "messages: who does not listen",
	})
}

// run runs the suite on a store with a fault.
func run(t *testing.T, kind string) {
	t.Helper()
	leasetest.Run(t, leasetest.Harness{
		New: func(*testing.T) lease.Store {
			return &faulty{Store: leasetest.NewStore(), kind: kind, board: newBoard()}
		},
		Reopen: func(_ *testing.T, store lease.Store) lease.Store {
			if kind == "it forgets when it restarts" {
				return leasetest.NewStore()
			}
			return store
		},
	})
}
