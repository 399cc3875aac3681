package pgsession

import (
	"encoding/binary"
	"iter"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Type OIDs, from pg_type.dat.
const (
	oidInt8 = 20
	oidOID  = 26
)

// keys returns the parameters for operations of one shape, valid until the next call: the keys to
// unlock, those to try, and the turnstiles of these if they are shared.
func (b *batch) keys(k *kind) [][]byte {
	unlocks, tries := k.ops[:k.unlocks], k.ops[k.unlocks:]
	b.arrays[0], b.arrays[1] = tags(b.arrays[0], unlocks, tagOf), tags(b.arrays[1], tries, tagOf)
	params := append(b.params[:0], b.arrays[0], b.arrays[1])
	if k.ops[0].Mode == session.Shared {
		b.arrays[2] = tags(b.arrays[2], tries, turnstileOf)
		params = append(params, b.arrays[2])
	}
	return params
}

func tagOf(op *session.Op) namespace.Tag { return op.Tag }

func turnstileOf(op *session.Op) namespace.Tag { return op.Turnstile }

// anyKeys is keys for the single keys of Any.
func (b *batch) anyKeys(op *session.Op, turnstile []byte) [][]byte {
	b.arrays[0] = tags(b.arrays[0], op.Any, itself)
	return append(b.params[:0], b.arrays[0], turnstile)
}

// tags encodes an array of int8, in the buffer b.
func tags[T any](b []byte, from []T, tag func(T) namespace.Tag) []byte {
	b = arrayHeader(b[:0], oidInt8, len(from))
	for _, v := range from {
		b = appendElement8(b, tag(v))
	}
	return b
}

func appendElement8(b []byte, tag namespace.Tag) []byte {
	b = binary.BigEndian.AppendUint32(b, 8)
	return binary.BigEndian.AppendUint64(b, int8Of(tag))
}

// int8Of returns a tag as one int8: a single key, or the two halves of a pair.
func int8Of(tag namespace.Tag) uint64 { return uint64(tag.ClassID)<<32 | uint64(tag.ObjID) }

func itself(tag namespace.Tag) namespace.Tag { return tag }

func oidArray(values []uint32) []byte {
	b := arrayHeader(nil, oidOID, len(values))
	for _, v := range values {
		b = appendElement4(b, v)
	}
	return b
}

// arrayHeader writes the header of the binary form of a one-dimensional array without nulls.
func arrayHeader(b []byte, element uint32, n int) []byte {
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0) // no dimension
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, element)
	}
	b = binary.BigEndian.AppendUint32(b, 1) // dimension
	b = binary.BigEndian.AppendUint32(b, 0) // no nulls
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1) // lower bound
}

func appendElement4(b []byte, v uint32) []byte {
	return binary.BigEndian.AppendUint64(b, 4<<32|uint64(v))
}

// int8s decodes an int8[]; nil is empty.
func int8s(array []byte) (values iter.Seq[uint64], ok bool) {
	const header, element = 20, 12
	if len(array) > header && (len(array)-header)%element != 0 {
		return nil, false
	}
	return func(yield func(uint64) bool) {
		for at := header; at+element <= len(array); at += element {
			if !yield(binary.BigEndian.Uint64(array[at+4:])) {
				return
			}
		}
	}, true
}
