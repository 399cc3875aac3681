package namespace

import (
	"crypto/sha256"
	"encoding/binary"
)

// Turnstile returns the lock that whoever waits for this one takes first, and keeps until
// it has this one: so nobody passes by who waits. It is a hash, which looks like a key of
// the same namespace.
func (t Tag) Turnstile() Tag {
	b := append(make([]byte, 0, 32), "pglatch turnstile"...)
	b = binary.BigEndian.AppendUint32(b, t.ClassID)
	b = binary.BigEndian.AppendUint32(b, t.ObjID)
	b = binary.BigEndian.AppendUint16(b, t.ObjSubID)
	sum := sha256.Sum256(b)
	number, _ := t.namespaceNumber() // 0 for none
	return Tag{ClassID: uint32(number)<<16 | uint32(binary.BigEndian.Uint16(sum[:])), ObjID: binary.BigEndian.Uint32(sum[2:]), ObjSubID: SingleForm}
}
