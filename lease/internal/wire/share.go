package wire

import (
	"strconv"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

// The modes of an AcquireBody.
const (
	ModeShared    = "shared"    // a slot of the lock
	ModeExclusive = "exclusive" // the whole lock
)

// IsShare reports whether a share of a lock is asked for.
func (b *AcquireBody) IsShare() bool { return b.Mode != "" || b.Slots != 0 }

// ShareRequest is what the server reads, with the terms r.
func (b *AcquireBody) ShareRequest(r lease.AcquireRequest) shared.Request {
	return shared.Request{AcquireRequest: r, Slots: b.Slots, Exclusive: b.Mode == ModeExclusive}
}

// CheckMode refuses a mode that is none.
func (b *AcquireBody) CheckMode() error {
	switch b.Mode {
	case "", ModeShared, ModeExclusive:
		return nil
	}
	return &lease.InvalidError{Field: "Mode", Value: strconv.Quote(b.Mode), Remedy: "use shared or exclusive"}
}

// NewShareBody is what a client sends.
func NewShareBody(r shared.Request) AcquireBody {
	b := NewAcquireBody(r.AcquireRequest)
	b.Mode, b.Slots = ModeShared, r.Slots
	if r.Exclusive {
		b.Mode = ModeExclusive
	}
	return b
}

// Share is what a client reads.
func (b *LeaseBody) Share(asked lease.Moment) shared.Share {
	return shared.Share{Lease: b.Lease(), Lock: b.ShareOf, Slot: b.Slot, Fence: b.Fence, Asked: asked}
}
