package shared

import (
	"fmt"
	"strconv"

	"github.com/pglatch/pglatch/lease"
)

// A Request asks for a slot of a lock, or for the whole lock.
type Request struct {
	// AcquireRequest contains the name of the lock and the terms of the lease. LockDelay and
	// MinHold apply to the slot. An exclusive request has no MinHold. If the Store is not a
	// lease.HandOverer, there are two differences for exclusive requests. The LockDelay also
	// applies if the request dies or gives up while it waits, and the MaxLifetime counts from when
	// the request began to keep others out.
	lease.AcquireRequest

	// Slots is how many leases the lock may have when this one is granted, including this one: 1 to
	// MaxSlots. 0 = MaxSlots, for readers, whose number nothing else limits.
	Slots int

	// Exclusive requests the whole lock: while the lease lasts, nobody has a slot. Slots must then
	// be 0.
	Exclusive bool
}

// Validate returns a *lease.InvalidError for the first field that is out of bounds.
func (r Request) Validate() error {
	if err := validateLock(r.Name); err != nil {
		return err
	}
	if err := r.AcquireRequest.Validate(); err != nil {
		return err
	}
	switch {
	case r.Slots < 0 || r.Slots > MaxSlots:
		return &lease.InvalidError{Field: "Slots", Value: strconv.Itoa(r.Slots), Remedy: fmt.Sprintf("use 1 to %d, or 0 for that", MaxSlots)}
	case r.Exclusive && r.Slots != 0:
		return &lease.InvalidError{Field: "Slots", Value: strconv.Itoa(r.Slots), Remedy: "give none with an exclusive request: it is for all slots"}
	case r.Exclusive && r.MinHold != 0:
		return &lease.InvalidError{Field: "MinHold", Value: r.MinHold.String(), Remedy: "give none with an exclusive request"}
	}
	return nil
}

// A Share is a slot of a lock, or the whole lock, until its lease ends. Its lease is an ordinary
// one on the name SlotName(Lock, Slot). Use its claim to renew and release it.
type Share struct {
	lease.Lease

	Lock string
	Slot int // 1 to Request.Slots; 0 = the whole lock

	// Fence is greater than the Fence of every share of the lock that ended before this one began,
	// in any slot; see the package's documentation. The lease's own Token is greater only than
	// earlier ones of the same slot.
	Fence uint64

	// Asked is the Moment just before the request was sent, from which the time of the lease
	// counts; see lease.Trust.
	Asked lease.Moment
}
