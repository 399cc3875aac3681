package shared

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A view is the store's answer about the leases of a lock.
type view struct {
	gate    lease.Record
	slots   map[int]lease.Record
	expired []int         // slots that can be granted, and whose leases nobody has released
	taken   int           // slots that cannot be granted now
	soonest time.Duration // until the first of them can be
	latest  time.Duration // until the last can be
	holder  string        // of one of them
}

// look lists the leases of the lock.
func (q *request) look() (*view, error) {
	v, began := &view{slots: make(map[int]lease.Record)}, time.Now()
	for r, err := range q.leases(q.ctx, q.Name) {
		if err != nil {
			return nil, err
		}
		_, slot, _ := ParseName(r.Name)
		if slot == 0 {
			v.gate = r
			continue
		}
		v.slots[slot] = r
		switch {
		case r.State == lease.Held:
			v.take(r.AvailableIn, r.Holder)
		case r.AvailableIn > 0:
			v.take(r.AvailableIn, "")
		case r.State == lease.Expired:
			v.expired = append(v.expired, slot)
		}
	}
	q.took.Store(int64(time.Since(began)))
	return v, nil
}

// take counts a slot that cannot be granted.
func (v *view) take(remaining time.Duration, holder string) {
	if v.taken++; v.taken == 1 || remaining < v.soonest {
		v.soonest = remaining
	}
	v.latest, v.holder = max(v.latest, remaining), cmp.Or(v.holder, holder)
}

// mine returns the slots that an earlier sending of a request may have got.
func (v *view) mine(r Request) []int {
	var mine []int
	for slot, record := range v.slots {
		if r.IdempotencyKey != "" && record.State == lease.Held && record.Holder == r.Holder && slot <= r.Slots && r.canBe(record) {
			mine = append(mine, slot)
		}
	}
	slices.Sort(mine)
	return mine
}

// free returns the slots that can be granted to a request that allows n taken slots, the lowest
// first.
func (v *view) free(n int) []int {
	var free []int
	if v.taken >= n {
		return nil
	}
	for slot := 1; slot <= n; slot++ {
		if r := v.slots[slot]; r.State != lease.Held && r.AvailableIn <= 0 {
			free = append(free, slot)
		}
	}
	return free
}

// held returns the error that the lock is kept for some time.
func (v *view) held(lock string, remaining time.Duration) error {
	return heldBy(lock, v.holder, remaining)
}

func heldBy(lock, holder string, remaining time.Duration) error {
	remaining = max(remaining, time.Millisecond)
	return &lease.HeldError{Name: lock, Holder: holder, Remaining: remaining, Retry: rules.Retry(remaining)}
}

// refusal returns the error of a request for which a wait at the gate cannot help; nil if it can.
func (v *view) refusal(r Request) error {
	keeps := v.gate.State == lease.Held && v.gate.Metadata[modeKey] != modePassing
	switch {
	case keeps || v.gate.State != lease.Held && v.gate.AvailableIn > 0:
		return heldBy(r.Name, v.gate.Holder, v.gate.AvailableIn)
	case len(v.mine(r)) > 0:
		return nil
	case r.Exclusive && v.taken > 0:
		return v.held(r.Name, v.latest)
	case !r.Exclusive && v.taken >= r.Slots:
		return v.held(r.Name, v.soonest)
	}
	return nil
}

// Holders returns the leases of a lock that have not ended, in the order of the slots. Slot 0 is
// the gate: its holder has the whole lock, or has a request at the gate right now.
func (l *Locker) Holders(ctx context.Context, lock string) ([]lease.Record, error) {
	if err := validateLock(lock); err != nil {
		return nil, err
	}
	var holders []lease.Record
	for r, err := range l.leases(ctx, lock) {
		if err != nil {
			return nil, fmt.Errorf("shared: holders of %s: %w", lock, err)
		}
		if r.State == lease.Held {
			holders = append(holders, r)
		}
	}
	return holders, nil
}

// leases yields the records of the gate and the slots of a lock, a page at a time. Any number of
// other names can lie between them, so it reads until the last slot.
func (l *Locker) leases(ctx context.Context, lock string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		last := SlotName(lock, MaxSlots)
		for r := (lease.ListRequest{Prefix: Prefix(lock), Limit: MaxSlots + 1}); ; {
			read := 0
			for record, err := range l.config.Store.List(ctx, r) {
				if err != nil {
					yield(lease.Record{}, err)
					return
				}
				read, r.After = read+1, record.Name
				if name, _, ok := ParseName(record.Name); ok && name == lock && !yield(record, nil) {
					return
				}
			}
			if read < r.Limit || r.After >= last {
				return
			}
		}
	}
}
