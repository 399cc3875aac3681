package shared

import (
	"fmt"
	"hash/fnv"
	"maps"

	"github.com/pglatch/pglatch/lease"
)

// markKey is of the metadata of a slot: a digest of the idempotency key by which it was got. A
// request that is sent again looks at each slot of its holder whether it is its own, and one
// holder can have all of them: the digest rules most of them out. It is 32 bits, which tell
// who reads them next to nothing of a key.
const markKey = "pglatch.request"

func (r Request) mark() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.IdempotencyKey))
	return fmt.Sprintf("%08x", h.Sum32())
}

// marked is the metadata of a slot of the request.
func (r Request) marked() map[string]string {
	if r.IdempotencyKey == "" {
		return r.Metadata
	}
	with := r.AcquireRequest
	if with.Metadata = maps.Clone(r.Metadata); with.Metadata == nil {
		with.Metadata = make(map[string]string)
	}
	with.Metadata[markKey] = r.mark()
	if with.Validate() != nil { // it is too much: without it the slot is asked for
		return r.Metadata
	}
	return with.Metadata
}

// unmarked is the metadata that the request gave.
func unmarked(metadata map[string]string) map[string]string {
	metadata = maps.Clone(metadata)
	delete(metadata, markKey)
	return metadata
}

// canBe reports whether a slot of the request's holder can be the request's. Renewals can have
// taken the mark away.
func (r Request) canBe(slot lease.Record) bool {
	mark, marked := slot.Metadata[markKey]
	return !marked || mark == r.mark()
}
