// Package electionkeys derives the companion keys of elections and of groups of shards: locks of pglatch's own, in
// addition to the deciding lock.
package electionkeys

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/pglatch/pglatch/namespace"
)

// Keys are the companion keys of a key on which a leader is elected: a lock for its guarded transactions, and an
// incarnation for each leadership. They are single keys of one class in pglatch's own space, which has the sign bit. If
// two elections have the same class by chance, their guards' locks still differ. The zero Keys are invalid.
type Keys struct{ class, guard uint32 }

// Of returns the companion keys of the election on the key with this tag. Like every derivation it never changes. It
// uses SHA-256("pglatch election" ‖ int4 classid ‖ int4 objid ‖ int4 objsubid), big endian. The class is the sign bit
// and the first 31 bits. The objid of the guard is the second 32 bits, or 1 if they are 0.
func Of(t namespace.Tag) Keys {
	b := []byte("pglatch election")
	b = binary.BigEndian.AppendUint32(b, t.ClassID)
	b = binary.BigEndian.AppendUint32(b, t.ObjID)
	b = binary.BigEndian.AppendUint32(b, uint32(t.ObjSubID))
	return OfText(b)
}

// OfText returns the companion keys for a text.
func OfText(text []byte) Keys {
	sum := sha256.Sum256(text)
	return Keys{
		class: 1<<31 | binary.BigEndian.Uint32(sum[:4])>>1,
		guard: max(binary.BigEndian.Uint32(sum[4:8]), 1),
	}
}

// ClassID is the classid of all the election's companion keys in pg_locks.
func (k Keys) ClassID() uint32 { return k.class }

// Guard returns the lock that guarded transactions share. A new leader briefly takes it in exclusive mode.
func (k Keys) Guard() namespace.Tag {
	return namespace.Tag{ClassID: k.class, ObjID: k.guard, ObjSubID: namespace.SingleForm}
}

// Incarnation returns the lock of one leadership, with objid r. r is not the guard's objid.
func (k Keys) Incarnation(r uint32) namespace.Tag {
	return namespace.Tag{ClassID: k.class, ObjID: r, ObjSubID: namespace.SingleForm}
}
