package namespace

import (
	"crypto/sha256"
	"encoding/binary"
)

// An Election is the companion keys of a key on which a leader is elected: a lock
// for its guarded transactions, one for those of earlier versions, and an incarnation
// for each leadership. They are single keys of one class in pglatch's own space, which has the
// sign bit. Elections whose classes are the same by chance differ in the lock of
// their guards. The zero Election is invalid.
type Election struct{ class, guard uint32 }

// Election returns the companion keys of the election on k. Like every derivation
// it never changes. k must be valid.
func (k Key) Election() Election { return k.tag.election() }

// election hashes a tag: of SHA-256("pglatch election" ‖ int4 classid ‖ int4 objid ‖
// int4 objsubid), big endian, the class is the sign bit and the first 31 bits, and the
// objid of the guard is the second 32 bits, or 1 if they are 0.
func (t Tag) election() Election {
	b := []byte("pglatch election")
	b = binary.BigEndian.AppendUint32(b, t.ClassID)
	b = binary.BigEndian.AppendUint32(b, t.ObjID)
	b = binary.BigEndian.AppendUint32(b, uint32(t.ObjSubID))
	sum := sha256.Sum256(b)
	return Election{
		class: 1<<31 | binary.BigEndian.Uint32(sum[:4])>>1,
		guard: max(binary.BigEndian.Uint32(sum[4:8]), 1),
	}
}

// ClassID is that of all the election's companion keys in pg_locks.
func (e Election) ClassID() uint32 { return e.class }

// Guard returns the lock that guarded transactions share and that a new leader
// takes alone for an instant.
func (e Election) Guard() Tag {
	return Tag{ClassID: e.class, ObjID: e.guard, ObjSubID: SingleForm}
}

// Barrier returns the lock that guarded transactions of earlier versions share, and
// that a new leader takes alone for an instant for their sake. Its objid is 0.
func (e Election) Barrier() Tag { return Tag{ClassID: e.class, ObjSubID: SingleForm} }

// Incarnation returns the lock of one leadership, with objid r. r is neither 0, which
// is the barrier's, nor the guard's.
func (e Election) Incarnation(r uint32) Tag {
	return Tag{ClassID: e.class, ObjID: r, ObjSubID: SingleForm}
}
