package namespace

import (
	"crypto/sha256"
	"encoding/binary"
)

// derive hashes an entity of n into a non-negative bigint whose bits 62..48 are the
// namespace's number. A role other than "" derives a companion key of the same
// entity (a semaphore's slot, its turnstile). No entity contains the NUL byte, so it
// keeps companions apart from every plain key's input.
func (n Namespace) derive(entity, role string) int64 {
	b := make([]byte, 0, 4+len(n.name)+len(entity)+1+len(role))
	b = binary.BigEndian.AppendUint32(b, uint32(len(n.name)))
	b = append(b, n.name...)
	b = append(b, entity...)
	if role != "" {
		b = append(b, 0)
		b = append(b, role...)
	}
	sum := sha256.Sum256(b)
	return int64(n.number)<<48 | int64(binary.BigEndian.Uint64(sum[:8])>>16)
}
