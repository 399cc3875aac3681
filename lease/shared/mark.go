package shared

import (
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	"github.com/pglatch/pglatch/lease"
)

// Metadata of a slot that a request with an idempotency key got. A renewal that changes the
// metadata removes both.
const (
	// markKey is a digest of the key. A resent request checks each slot of its holder, which may
	// have all slots; the digest rules most of them out. It has 32 bits, so it reveals almost
	// nothing of a key.
	markKey = "pglatch.request"

	// fenceKey is the Fence of the share. It is written when the gate was the request's until it
	// had the slot. So other sendings of the request recognize their slot without the gate.
	fenceKey = "pglatch.fence"
)

func (r Request) mark() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.IdempotencyKey))
	return fmt.Sprintf("%08x", h.Sum32())
}

// marked returns the metadata of a slot of the request, with room for the Fence.
func (r Request) marked() map[string]string {
	if r.IdempotencyKey == "" {
		return r.Metadata
	}
	with := r.AcquireRequest
	with.Metadata = fenced(r.Metadata, lease.MaxToken)
	with.Metadata[markKey] = r.mark()
	if with.Validate() != nil { // too much metadata: the slot is requested without the mark
		return r.Metadata
	}
	delete(with.Metadata, fenceKey)
	return with.Metadata
}

// fenced returns metadata with a Fence.
func fenced(metadata map[string]string, fence uint64) map[string]string {
	if metadata = maps.Clone(metadata); metadata == nil {
		metadata = make(map[string]string)
	}
	metadata[fenceKey] = strconv.FormatUint(fence, 10)
	return metadata
}

// fenceOf returns the Fence of a slot that has a mark; 0 = none.
func fenceOf(metadata map[string]string) uint64 {
	if metadata[markKey] == "" {
		return 0
	}
	fence, _ := strconv.ParseUint(metadata[fenceKey], 10, 64)
	return fence
}

// unmarked returns the metadata that the request gave.
func unmarked(metadata map[string]string) map[string]string {
	metadata = maps.Clone(metadata)
	delete(metadata, markKey)
	delete(metadata, fenceKey)
	return metadata
}

// canBe reports whether a slot of the request's holder may be the request's. A renewal may have
// removed the mark.
func (r Request) canBe(slot lease.Record) bool {
	mark, marked := slot.Metadata[markKey]
	return !marked || mark == r.mark()
}
