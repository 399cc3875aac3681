package namespace

import (
	"crypto/sha256"
	"encoding/binary"
)

// An Election is the companion keys of a key on which a leader is elected: one
// barrier, and an incarnation for each leadership. They are single keys of one
// class in pglatch's own space, which has the sign bit. The zero Election is
// invalid.
type Election struct{ class uint32 }

// Election returns the companion keys of the election on k. Like every derivation
// it never changes. k must be valid.
func (k Key) Election() Election { return k.tag.election() }

// election hashes a tag: the class is the sign bit and the first 31 bits, big
// endian, of SHA-256("pglatch election" ‖ int4 classid ‖ int4 objid ‖ int4 objsubid).
func (t Tag) election() Election {
	b := []byte("pglatch election")
	b = binary.BigEndian.AppendUint32(b, t.ClassID)
	b = binary.BigEndian.AppendUint32(b, t.ObjID)
	b = binary.BigEndian.AppendUint32(b, uint32(t.ObjSubID))
	sum := sha256.Sum256(b)
	return Election{class: 1<<31 | binary.BigEndian.Uint32(sum[:4])>>1}
}

// ClassID is that of all the election's companion keys in pg_locks.
func (e Election) ClassID() uint32 { return e.class }

// Barrier returns the lock that guarded transactions share and that a new leader
// takes alone for an instant. Its objid is 0.
func (e Election) Barrier() Tag { return Tag{ClassID: e.class, ObjSubID: SingleForm} }

// Incarnation returns the lock of one leadership, with objid r. r is not 0, which
// is the barrier's.
func (e Election) Incarnation(r uint32) Tag {
	return Tag{ClassID: e.class, ObjID: r, ObjSubID: SingleForm}
}
