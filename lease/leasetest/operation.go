package leasetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// An Operation is a call of a client in another process, such as one in another language, which
// writes it as a line of JSON. Times are nanoseconds on a clock that all clients share, such as
// CLOCK_MONOTONIC.
type Operation struct {
	Verb    string `json:"op"` // acquire, renew or release
	Lock    string `json:"lock"`
	Owner   string `json:"owner_id"`
	LeaseID string `json:"lease_id"`      // of an acquire: as answered
	Token   uint64 `json:"fencing_token"` // of an acquire: as answered
	Key     string `json:"idempotency_key"`

	Began int64 `json:"began_ns"` // before the first request was sent
	Ended int64 `json:"ended_ns"` // when the caller had the answer; 0 = never

	// Outcome is ok, or the last part of a problem's type, such as lock-held; anything else
	// is an unknown outcome.
	Outcome string `json:"outcome"`
	HeldBy  string `json:"held_by"` // of lock-held

	// Sendings is how often the request was sent. If it was sent several times, a sending without
	// an answer may have taken effect, or may still do so. For example, a release whose first
	// answer was lost can be stale at another server.
	Sendings int `json:"sendings"`

	// From the answer.
	AcquiredAt  time.Time `json:"acquired_at"`
	ExpiresAt   time.Time `json:"expires_at"`
	RemainingMS int64     `json:"ttl_remaining_ms"`

	// TrustedUntil is the time until which the client trusts the lease after this answer,
	// if no other answer comes.
	TrustedUntil int64 `json:"trusted_until_ns"`
}

var errNoAnswer = errors.New("no answer")

// outcomes are the errors that a client in another language can get.
var outcomes = map[string]func(o *Operation) error{
	"ok":              func(*Operation) error { return nil },
	"lock-held":       func(o *Operation) error { return &lease.HeldError{Name: o.Lock, Holder: o.HeldBy} },
	"lease-stale":     func(*Operation) error { return lease.ErrStale },
	"lease-expired":   func(*Operation) error { return lease.ErrExpired },
	"lock-not-found":  func(*Operation) error { return lease.ErrNotFound },
	"lock-busy-retry": func(*Operation) error { return lease.ErrBusy },
	"rate-limited":    func(*Operation) error { return lease.ErrBusy },
	"store-not-ready": func(*Operation) error { return lease.ErrBusy },
}

// Add records an operation. Add the operations of each client in the order of its calls.
// Either all operations of a History must be recorded by Add, or none. The error reports
// an invalid Operation, such as one with an unknown verb.
func (h *History) Add(o Operation) error {
	c := call{verb: verb(o.Verb), claim: o.claim(), key: o.Key}
	switch {
	case c.verb != acquire && c.verb != renew && c.verb != release, o.Lock == "", o.Began <= 0, o.Ended != 0 && o.Ended < o.Began:
		return fmt.Errorf("leasetest: no operation: %+v", o)
	case c.verb == acquire:
		c.claim.ID, c.claim.Token = "", 0
	case c.verb == release:
		h.releasing(c.claim, time.Duration(o.Began))
	}
	err := errNoAnswer
	if known := outcomes[o.Outcome]; known != nil && o.Ended != 0 {
		err = known(&o)
	}
	if o.Sendings > 1 {
		h.record(c, time.Duration(o.Began), time.Duration(o.Ended), 0, lease.Lease{}, errNoAnswer)
	}
	l := lease.Lease{Claim: o.claim(), AcquiredAt: o.AcquiredAt, ExpiresAt: o.ExpiresAt, Remaining: time.Duration(o.RemainingMS) * time.Millisecond}
	h.record(c, time.Duration(o.Began), time.Duration(o.Ended), time.Duration(o.TrustedUntil), l, err)
	return nil
}

func (o *Operation) claim() lease.Claim {
	return lease.Claim{Name: o.Lock, Holder: o.Owner, ID: o.LeaseID, Token: o.Token}
}
