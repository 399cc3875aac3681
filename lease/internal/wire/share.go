package wire

import (
	"fmt"
	"strconv"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

// The modes of an AcquireBody.
const (
	ModeShared    = "shared"    // a slot of the lock
	ModeExclusive = "exclusive" // the whole lock
)

// IsShare reports whether the body asks for a share of a lock.
func (b *AcquireBody) IsShare() bool { return b.Mode != nil || b.Slots != nil }

// ShareRequest converts the body to a request with the terms r. It returns *lease.InvalidError for
// invalid mode or slots.
func (b *AcquireBody) ShareRequest(r lease.AcquireRequest) (shared.Request, error) {
	s := shared.Request{AcquireRequest: r}
	if b.Mode != nil {
		if *b.Mode != ModeShared && *b.Mode != ModeExclusive {
			return s, &lease.InvalidError{Field: "Mode", Value: strconv.Quote(*b.Mode), Remedy: "use shared or exclusive"}
		}
		s.Exclusive = *b.Mode == ModeExclusive
	}
	if b.Slots != nil {
		if s.Slots = *b.Slots; s.Slots == 0 {
			return s, &lease.InvalidError{Field: "Slots", Value: "0", Remedy: fmt.Sprintf("use 1 to %d, or leave it out with a mode", shared.MaxSlots)}
		}
	}
	return s, s.Validate()
}

// NewShareBody returns the body of a client's request for a share.
func NewShareBody(r shared.Request) AcquireBody {
	b := NewAcquireBody(r.AcquireRequest)
	b.Mode = new(ModeShared)
	if r.Exclusive {
		b.Mode = new(ModeExclusive)
	}
	if r.Slots != 0 {
		b.Slots = &r.Slots
	}
	return b
}

// Share converts the answer to the client's share.
func (b *LeaseBody) Share(asked lease.Moment) shared.Share {
	return shared.Share{Lease: b.Lease(), Lock: b.ShareOf, Slot: b.Slot, Fence: b.Fence, Asked: asked}
}
