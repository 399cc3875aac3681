// Package turnstile derives the turnstile of a lock, a second lock in front of it. It is for
// packages that take locks and for those that show them.
package turnstile

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/pglatch/pglatch/namespace"
)

// Of returns the turnstile of t. A waiter for t takes it first, and keeps it until it has t, so
// that nobody overtakes the waiter. The turnstile is a hash that looks like a key of the same
// namespace. Like every derivation it never changes: SHA-256("pglatch turnstile" ‖ int4 classid ‖
// int4 objid ‖ int2 objsubid), big endian, gives the last 48 bits of a single key.
func Of(t namespace.Tag) namespace.Tag {
	b := append(make([]byte, 0, 32), "pglatch turnstile"...)
	b = binary.BigEndian.AppendUint32(b, t.ClassID)
	b = binary.BigEndian.AppendUint32(b, t.ObjID)
	b = binary.BigEndian.AppendUint16(b, t.ObjSubID)
	sum := sha256.Sum256(b)
	number, _ := t.NamespaceNumber() // 0 if there is none
	return namespace.Tag{
		ClassID: uint32(number)<<16 | uint32(binary.BigEndian.Uint16(sum[:])), ObjID: binary.BigEndian.Uint32(sum[2:]), ObjSubID: namespace.SingleForm,
	}
}
