package pgsession

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/pglatch/pglatch/namespace"
)

// An Election is the companion keys of a key on which a leader is elected: a lock
// for its guarded transactions, one for those of earlier versions, and an incarnation
// for each leadership. They are single keys of one class in pglatch's own space, which has the
// sign bit. Elections whose classes are the same by chance differ in the lock of
// their guards. The zero Election is invalid.
type Election struct{ class, guard uint32 }

// ElectionOf returns the companion keys of the election on a key that has the tag. Like
// every derivation it never changes: of SHA-256("pglatch election" ‖ int4 classid ‖ int4
// objid ‖ int4 objsubid), big endian, the class is the sign bit and the first 31 bits, and
// the objid of the guard is the second 32 bits, or 1 if they are 0.
func ElectionOf(t namespace.Tag) Election {
	b := []byte("pglatch election")
	b = binary.BigEndian.AppendUint32(b, t.ClassID)
	b = binary.BigEndian.AppendUint32(b, t.ObjID)
	b = binary.BigEndian.AppendUint32(b, uint32(t.ObjSubID))
	return electionOf(b)
}

// electionOf returns the companion keys that a text stands for.
func electionOf(text []byte) Election {
	sum := sha256.Sum256(text)
	return Election{
		class: 1<<31 | binary.BigEndian.Uint32(sum[:4])>>1,
		guard: max(binary.BigEndian.Uint32(sum[4:8]), 1),
	}
}

// ClassID is that of all the election's companion keys in pg_locks.
func (e Election) ClassID() uint32 { return e.class }

// Guard returns the lock that guarded transactions share and that a new leader
// takes alone for an instant.
func (e Election) Guard() namespace.Tag {
	return namespace.Tag{ClassID: e.class, ObjID: e.guard, ObjSubID: namespace.SingleForm}
}

// Barrier returns the lock that guarded transactions of earlier versions share, and
// that a new leader takes alone for an instant for their sake. Its objid is 0.
func (e Election) Barrier() namespace.Tag {
	return namespace.Tag{ClassID: e.class, ObjSubID: namespace.SingleForm}
}

// Incarnation returns the lock of one leadership, with objid r. r is neither 0, which
// is the barrier's, nor the guard's.
func (e Election) Incarnation(r uint32) namespace.Tag {
	return namespace.Tag{ClassID: e.class, ObjID: r, ObjSubID: namespace.SingleForm}
}
