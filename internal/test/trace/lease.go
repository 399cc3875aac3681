package trace

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A Call is a call of a lease store, and its answer. Times are nanoseconds since 1970 by the store's clock, and 0 without one.
type Call struct {
	TTL   time.Duration `json:"ttl,omitempty"`
	Key   string        `json:"key,omitempty"`   // the idempotency key
	ID    string        `json:"id,omitempty"`    // of the claim: granted, or in the request
	Token uint64        `json:"token,omitempty"` // likewise

	Answer    Answer        `json:"answer"`
	Acquired  int64         `json:"acquired,omitempty"`
	Expires   int64         `json:"expires,omitempty"`
	Remaining time.Duration `json:"remaining,omitempty"`
	Holder    string        `json:"holder,omitempty"` // of an answer Held
	Wrong     []string      `json:"wrong,omitempty"`  // of an answer Stale: what did not match
}

// An Answer is the outcome of a Call.
type Answer string

// The answers of a store.
const (
	Done     Answer = "done"
	Held     Answer = "held"
	Stale    Answer = "stale"
	Expired  Answer = "expired"
	NotFound Answer = "not_found"
	Nothing  Answer = "nothing" // nothing was done, for a reason outside of the rules
	Unknown  Answer = "unknown" // the operation may be carried out, then or later
)

// Store returns a store that writes its calls. A nil Writer returns the store itself.
func (w *Writer) Store(s lease.Store) lease.Store {
	if w == nil {
		return s
	}
	return store{s, w}
}

type store struct {
	lease.Store
	w *Writer
}

func (s store) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	asked := Now()
	l, err := s.Store.Acquire(ctx, r)
	c := answer(l, err)
	c.TTL, c.Key = r.TTL, r.IdempotencyKey
	c.ID, c.Token = l.ID, l.Token
	s.w.Emit(Event{Kind: LeaseAcquire, Asked: asked, Key: r.Name, Who: r.Holder, Text: text(err), Lease: c})
	return l, err
}

func (s store) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	asked := Now()
	l, err := s.Store.Renew(ctx, r)
	c := answer(l, err)
	c.TTL, c.ID, c.Token = r.TTL, r.ID, r.Token
	s.w.Emit(Event{Kind: LeaseRenew, Asked: asked, Key: r.Name, Who: r.Holder, Text: text(err), Lease: c})
	return l, err
}

func (s store) Release(ctx context.Context, claim lease.Claim) error {
	asked := Now()
	err := s.Store.Release(ctx, claim)
	c := answer(lease.Lease{}, err)
	c.ID, c.Token = claim.ID, claim.Token
	s.w.Emit(Event{Kind: LeaseRelease, Asked: asked, Key: claim.Name, Who: claim.Holder, Text: text(err), Lease: c})
	return err
}

func answer(l lease.Lease, err error) *Call {
	c := &Call{Answer: Done}
	var held *lease.HeldError
	var stale *lease.StaleError
	var expired *lease.ExpiredError
	switch {
	case err == nil:
		c.Acquired, c.Expires, c.Remaining = nanoseconds(l.AcquiredAt), nanoseconds(l.ExpiresAt), l.Remaining
	case errors.As(err, &held):
		c.Answer, c.Holder, c.Remaining = Held, held.Holder, held.Remaining
	case errors.As(err, &stale):
		c.Answer = Stale
		c.Wrong = Wrong(stale)
	case errors.As(err, &expired):
		c.Answer, c.Expires = Expired, nanoseconds(expired.At)
	case errors.Is(err, lease.ErrNotFound):
		c.Answer = NotFound
	case lease.NothingDone(err):
		c.Answer = Nothing
	default:
		c.Answer = Unknown
	}
	return c
}

// Wrong returns what a StaleError names, as in Call.Wrong.
func Wrong(e *lease.StaleError) (words []string) {
	for i, wrong := range []bool{e.Holder, e.ID, e.Token, e.Released} {
		if wrong {
			words = append(words, [...]string{"holder", "id", "token", "released"}[i])
		}
	}
	return words
}

func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
