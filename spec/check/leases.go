package check

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/lease"
)

// leaseLimit bounds the search for an order of the calls on all names.
const leaseLimit = 2 * time.Minute

// roundLease is the tolerance for times that went through a protocol with milliseconds.
const roundLease = 2 * time.Millisecond

var leaseSeed = maphash.MakeSeed()

// longAgo stands for the time of a release, which no answer tells.
var longAgo = time.Unix(1, 0)

// Leases replays the calls of a run on the rules of leases. For each name it looks for an order of the calls in which the
// rules give each answer, at the store's time that the answer tells. The order must agree with the times of calls and
// answers. A call whose outcome is unknown may be carried out at any later time, or never.
//
// All calls on a name must be in the run, but for sweeps that forget nothing. Lock delay, minimum hold and lifetimes are not
// replayed.
func Leases(run []trace.Event) error {
	names := make(map[string][]int)
	for i, e := range run {
		if e.Lease != nil && e.Lease.Answer != trace.Nothing {
			names[e.Key] = append(names[e.Key], i)
		}
	}
	deadline := time.Now().Add(leaseLimit)
	for _, indexes := range names {
		if err := leasesOf(run, indexes, time.Until(deadline)); err != nil {
			return err
		}
	}
	return nil
}

// leasesOf checks the calls on one name.
func leasesOf(run []trace.Event, indexes []int, limit time.Duration) error {
	model := leaseModel()
	events := make([]porcupine.Operation, len(indexes))
	for i, index := range indexes {
		events[i] = leaseOperation(run[index])
	}
	result, info := porcupine.CheckOperationsVerbose(model, events, limit)
	switch result {
	case porcupine.Unknown:
		return fmt.Errorf("the calls on %s could not be checked in %v", run[indexes[0]].Key, limit)
	case porcupine.Illegal:
		return refuse(run, indexes[stuckAt(events, info)], "in no order of the calls on this name do the rules of leases give all answers")
	}
	return nil
}

// stuckAt returns the call that no order reaches: the first one that was answered and is not in the longest legal order.
func stuckAt(operations []porcupine.Operation, info porcupine.LinearizationInfo) int {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	at := -1
	for i := range operations {
		if !slices.Contains(longest, i) && (at < 0 || operations[i].Return < operations[at].Return) {
			at = i
		}
	}
	return max(at, 0)
}

func leaseOperation(e trace.Event) porcupine.Operation {
	op := porcupine.Operation{Input: e, Call: e.Asked, Output: e, Return: e.Boot}
	if e.Lease.Answer == trace.Unknown {
		op.Return = forever
	}
	return op
}

// A leaseState is a row of the store. If loose, its end is unknown, and no earlier than ExpiresAt. If hidden, its id and
// token are unknown, because the answer was lost, and the token is no lower than Token.
type leaseState struct {
	row           leaseRow
	loose, hidden bool
}

func leaseModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{leaseState{}} },
		Step: func(state, input, _ any) []any {
			var next []any
			for _, s := range state.(leaseState).step(input.(trace.Event)) {
				next = append(next, s)
			}
			return next
		},
		Equal: func(a, b any) bool {
			x, y := a.(leaseState), b.(leaseState)
			return x.loose == y.loose && x.hidden == y.hidden && x.row.Claim == y.row.Claim && x.row.IdempotencyKey == y.row.IdempotencyKey &&
				x.row.ExpiresAt.Equal(y.row.ExpiresAt) && x.row.ReleasedAt.IsZero() == y.row.ReleasedAt.IsZero()
		},
		Hash: func(s any) uint64 {
			row := s.(leaseState).row
			return maphash.Comparable(leaseSeed, struct {
				lease.Claim
				expires int64
			}{row.Claim, row.ExpiresAt.UnixNano()})
		},
	}
	return m.ToModel()
}

// step returns the possible states after a call with its answer; none if the rules do not give it.
func (s leaseState) step(e trace.Event) []leaseState {
	if e.Lease.Answer == trace.Unknown {
		return s.either(e)
	}
	for _, known := range s.revealed(e) {
		for _, now := range known.moments(e) {
			if next, ok := known.at(e, now); ok {
				return []leaseState{next}
			}
		}
	}
	return nil
}

// revealed returns the state as it is, and, if it is hidden, as it is if the call shows the claim of the lease.
func (s leaseState) revealed(e trace.Event) []leaseState {
	c := e.Lease
	if !s.hidden || s.row.Holder != e.Who || c.ID == "" || c.Token < s.row.Token {
		return []leaseState{s}
	}
	shown := s
	shown.row.Claim, shown.hidden = lease.Claim{Name: e.Key, Holder: e.Who, ID: c.ID, Token: c.Token}, false
	if c.Acquired != 0 {
		shown.row.AcquiredAt = time.Unix(0, c.Acquired)
	}
	return []leaseState{s, shown}
}

// moments returns the times of the store at which the call may have been carried out, by its answer.
func (s leaseState) moments(e trace.Event) (all []time.Time) {
	c := e.Lease
	end := s.row.ExpiresAt
	switch c.Answer {
	case trace.Done:
		if e.Kind == trace.LeaseRelease {
			return []time.Time{end.Add(-1)} // its time is not known: at some moment it had not expired
		}
		expires := time.Unix(0, c.Expires)
		all = append(all, expires.Add(-c.Remaining), expires.Add(-c.TTL))
		if e.Kind == trace.LeaseAcquire {
			all = append(all, time.Unix(0, c.Acquired))
		}
		return all
	case trace.Held, trace.Stale:
		return []time.Time{end.Add(-1)}
	case trace.Expired:
		return []time.Time{time.Unix(0, c.Expires).Add(roundLease)}
	}
	return []time.Time{end}
}

// at carries the call out at a time. It reports whether the rules give its answer.
func (s leaseState) at(e trace.Event, now time.Time) (leaseState, bool) {
	c := e.Lease
	claim := lease.Claim{Name: e.Key, Holder: e.Who, ID: c.ID, Token: c.Token}
	if s.loose {
		s = s.settled(e, now)
	}
	var got lease.Lease
	var err error
	next := s
	switch e.Kind {
	case trace.LeaseAcquire:
		request := lease.AcquireRequest{Name: e.Key, Holder: e.Who, TTL: c.TTL, IdempotencyKey: c.Key}
		floor := uint64(0)
		if c.Token > 0 {
			floor = c.Token - 1 // tokens rise, and may leave gaps
		}
		next.row, got, err = ruleAcquire(s.row, floor, now, request, c.ID)
	case trace.LeaseRenew:
		next.row, got, err = ruleRenew(s.row, now, lease.RenewRequest{Claim: claim, TTL: c.TTL})
	default:
		next.row, err = ruleRelease(s.row, now, lease.ReleaseRequest{Claim: claim})
	}
	if err != nil {
		return s, refusedWith(c, err)
	}
	if c.Answer != trace.Done || e.Kind != trace.LeaseRelease && !sameLease(got, claim, c) {
		return s, false
	}
	next.loose, next.hidden = false, false
	if e.Kind == trace.LeaseRelease {
		next.row.ReleasedAt = longAgo // the next lease may begin at any time
	} else {
		next.row.ExpiresAt = time.Unix(0, c.Expires)
	}
	return next, true
}

// settled chooses the end of a loose row so that the answer can be given, if it can.
func (s leaseState) settled(e trace.Event, now time.Time) leaseState {
	end := s.row.ExpiresAt
	switch c := e.Lease; {
	case c.Answer == trace.Done && e.Kind == trace.LeaseRelease:
	case c.Answer == trace.Done && e.Kind == trace.LeaseAcquire && (c.Key == "" || c.Key != s.row.IdempotencyKey):
	case c.Answer == trace.Expired, c.Answer == trace.Done:
		end = time.Unix(0, c.Expires)
	default:
		end = now.Add(time.Nanosecond)
	}
	if end.After(s.row.ExpiresAt) {
		s.row.ExpiresAt = end
	}
	return s
}

// sameLease reports whether the rules give the lease of an answer.
func sameLease(l lease.Lease, claim lease.Claim, c *trace.Call) bool {
	return l.Claim == claim && near(l.AcquiredAt, c.Acquired) && near(l.ExpiresAt, c.Expires)
}

func near(t time.Time, ns int64) bool { return time.Unix(0, ns).Sub(t).Abs() <= roundLease }

// refusedWith reports whether the rules refuse a call as its answer says.
func refusedWith(c *trace.Call, err error) bool {
	var held *lease.HeldError
	var stale *lease.StaleError
	var expired *lease.ExpiredError
	switch c.Answer {
	case trace.Held:
		return errors.As(err, &held) && held.Holder == c.Holder
	case trace.Stale:
		return errors.As(err, &stale) && slices.Equal(trace.Wrong(stale), c.Wrong)
	case trace.Expired:
		return errors.As(err, &expired) && near(expired.At, c.Expires)
	case trace.NotFound:
		return errors.Is(err, lease.ErrNotFound)
	}
	return false
}

// either returns the states with and without a call whose outcome is unknown.
func (s leaseState) either(e trace.Event) []leaseState {
	c := e.Lease
	done, all := s, []leaseState{s}
	claim := lease.Claim{Name: e.Key, Holder: e.Who, ID: c.ID, Token: c.Token}
	known := s.row.Token != 0 && s.row.ReleasedAt.IsZero() && (s.row.Claim == claim || s.hidden && s.row.Holder == e.Who)
	switch {
	case e.Kind == trace.LeaseAcquire:
		token := s.row.Token
		if !s.hidden { // a hidden lease may not have been granted, and then this one has its token
			token++
		}
		done = leaseState{row: leaseRow{
			Claim:          lease.Claim{Name: e.Key, Holder: e.Who, ID: "?", Token: token},
			IdempotencyKey: c.Key, AcquiredAt: s.row.AcquiredAt, ExpiresAt: s.row.AcquiredAt.Add(1), Version: cmp.Or(s.row.Version, 1) + 1,
		}, loose: true, hidden: true}
	case !known:
		return all
	case e.Kind == trace.LeaseRenew:
		done.loose = true
	default:
		done.row.ReleasedAt = longAgo
	}
	return append(all, done)
}
