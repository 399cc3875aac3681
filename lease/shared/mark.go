package shared

import (
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	"github.com/pglatch/pglatch/lease"
)

// Metadata of a slot that a request with an idempotency key got. A renewal that changes the
// metadata takes both away.
const (
	// markKey is a digest of the key. A request that is sent again looks at each slot of its
	// holder whether it is its own, and one holder can have all of them: the digest rules most
	// of them out. It is 32 bits, which tell who reads them next to nothing of a key.
	markKey = "pglatch.request"

	// fenceKey is the Fence of the share. It is written when the gate was the request's until
	// it had the slot: other sendings of the request then need no gate to know that it is theirs.
	fenceKey = "pglatch.fence"
)

func (r Request) mark() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.IdempotencyKey))
	return fmt.Sprintf("%08x", h.Sum32())
}

// marked is the metadata of a slot of the request. There is room for the Fence in it.
func (r Request) marked() map[string]string {
	if r.IdempotencyKey == "" {
		return r.Metadata
	}
	with := r.AcquireRequest
	with.Metadata = fenced(r.Metadata, lease.MaxToken)
	with.Metadata[markKey] = r.mark()
	if with.Validate() != nil { // it is too much: without it the slot is asked for
		return r.Metadata
	}
	delete(with.Metadata, fenceKey)
	return with.Metadata
}

// fenced is metadata with a Fence.
func fenced(metadata map[string]string, fence uint64) map[string]string {
	if metadata = maps.Clone(metadata); metadata == nil {
		metadata = make(map[string]string)
	}
	metadata[fenceKey] = strconv.FormatUint(fence, 10)
	return metadata
}

// fenceOf is the Fence of a slot that has a mark; 0 = it has none.
func fenceOf(metadata map[string]string) uint64 {
	if metadata[markKey] == "" {
		return 0
	}
	fence, _ := strconv.ParseUint(metadata[fenceKey], 10, 64)
	return fence
}

// unmarked is the metadata that the request gave.
func unmarked(metadata map[string]string) map[string]string {
	metadata = maps.Clone(metadata)
	delete(metadata, markKey)
	delete(metadata, fenceKey)
	return metadata
}

// canBe reports whether a slot of the request's holder can be the request's. Renewals can have
// taken the mark away.
func (r Request) canBe(slot lease.Record) bool {
	mark, marked := slot.Metadata[markKey]
	return !marked || mark == r.mark()
}
