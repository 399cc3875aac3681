package leasetest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pglatch/pglatch/lease"
)

// rounding is the tolerance for the Remaining of a lease that went through a protocol.
const rounding = 2 * time.Millisecond

// A verb is an operation of a Store that a History records.
type verb string

const (
	acquire verb = "acquire"
	renew   verb = "renew"
	release verb = "release"
)

// A call is a client's request.
type call struct {
	verb  verb
	claim lease.Claim // of an acquire: name and holder
	key   string
}

// An answer is the result of a call.
type answer struct {
	lease lease.Lease
	err   error // nil, or of package lease
	lost  bool  // the outcome is unknown
}

// A stored is the model's state of one name.
type stored struct {
	claim   lease.Claim // its Token is the greatest known one
	key     string
	held    bool      // not released; it may have expired
	hidden  bool      // id and token are unknown: the answer was lost
	expires time.Time // zero = unknown
}

var modelSeed = maphash.MakeSeed()

// model is a lease as lease.Store describes it. Clients do not see expiry as an operation: the
// times in the store's answers stand for it. If an answer was lost, both outcomes are followed.
func model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []any { return []any{stored{}} },
		Step: func(state, input, output any) []any {
			b, c, a := state.(stored), input.(call), output.(answer)
			next := b.step(c, a)
			states := make([]any, len(next))
			for i, n := range next {
				states[i] = n
			}
			return states
		},
		Hash: func(state any) uint64 {
			b := state.(stored)
			return maphash.Comparable(modelSeed, struct {
				lease.Claim
				expires int64
			}{b.claim, b.expires.UnixNano()})
		},
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v -> %+v", input, output)
		},
	}
	return m.ToModel()
}

func partition(history []porcupine.Operation) [][]porcupine.Operation {
	index := map[string]int{}
	var parts [][]porcupine.Operation
	for _, op := range history {
		name := op.Input.(call).claim.Name
		i, known := index[name]
		if !known {
			i = len(parts)
			index[name] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// step returns the possible states after a call that was answered with a; none if that answer is
// impossible.
func (b stored) step(c call, a answer) []stored {
	switch {
	case a.lost:
		return b.either(c)
	case a.err != nil:
		if b.refuses(c, a.err) {
			return []stored{b}
		}
		return nil
	}
	switch c.verb {
	case acquire:
		return b.granted(c, a.lease)
	case renew:
		at := a.lease.ExpiresAt.Add(-a.lease.Remaining)
		late := !b.expires.IsZero() && !at.Add(-rounding).Before(b.expires)
		if !b.matches(c.claim) || !b.held || late || a.lease.ExpiresAt.Before(b.expires) {
			return nil
		}
		b = b.reveal(c.claim)
		b.expires = a.lease.ExpiresAt
	default:
		if !b.matches(c.claim) {
			return nil
		}
		b = b.reveal(c.claim)
		b.held = false
	}
	return []stored{b}
}

// granted is the outcome of an acquire that was answered.
func (b stored) granted(c call, l lease.Lease) []stored {
	if l.Name != c.claim.Name || l.Holder != c.claim.Holder {
		return nil
	}
	again := b.held && c.key != "" && c.key == b.key && b.matches(l.Claim)
	over := !b.held || b.expires.IsZero() || !l.AcquiredAt.Before(b.expires)
	if !again && (!over || l.Token <= b.claim.Token) {
		return nil
	}
	return []stored{{claim: l.Claim, key: c.key, held: true, expires: l.ExpiresAt}}
}

// either returns both outcomes of a call whose answer was lost.
func (b stored) either(c call) []stored {
	states := []stored{b}
	switch {
	case c.verb == acquire:
		if b.held && c.key != "" && c.key == b.key && c.claim.Holder == b.claim.Holder {
			break // it could only get the same lease
		}
		c.claim.Token = b.claim.Token
		states = append(states, stored{claim: c.claim, key: c.key, held: true, hidden: true})
	case !b.matches(c.claim):
	case c.verb == renew && b.held:
		b.expires = time.Time{}
		states = append(states, b)
	case c.verb == release && b.held:
		b.held = false
		states = append(states, b)
	}
	return states
}

// refuses reports whether a store in this state can answer c with err.
func (b stored) refuses(c call, err error) bool {
	var held *lease.HeldError
	switch {
	case errors.As(err, &held):
		return c.verb == acquire && b.held && held.Holder == b.claim.Holder
	case errors.Is(err, lease.ErrStale):
		return !b.matches(c.claim) || b.hidden || c.verb == renew && !b.held
	case errors.Is(err, lease.ErrExpired):
		return b.matches(c.claim) && b.held
	default: // a sweep may have forgotten the name; History knows whether it may
		return errors.Is(err, lease.ErrNotFound)
	}
}

// matches reports whether c is, or can be, the claim of the current or last lease.
func (b stored) matches(c lease.Claim) bool {
	if b.hidden {
		return b.claim.Holder == c.Holder && c.Token > b.claim.Token
	}
	return b.claim == c
}

// reveal returns b with a claim that matches.
func (b stored) reveal(c lease.Claim) stored {
	b.claim, b.hidden = c, false
	return b
}
