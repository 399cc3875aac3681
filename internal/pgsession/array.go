package pgsession

import (
	"encoding/binary"
	"iter"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Object identifiers of types, from pg_type.dat.
const (
	oidInt8 = 20
	oidInt4 = 23
	oidOID  = 26
)

// arrayHeader begins the binary form of an array of one dimension without nulls.
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

func appendElement8(b []byte, tag namespace.Tag) []byte {
	b = binary.BigEndian.AppendUint32(b, 8)
	b = binary.BigEndian.AppendUint32(b, tag.ClassID)
	return binary.BigEndian.AppendUint32(b, tag.ObjID)
}

// keys are the parameters for operations of one shape, until the next call: the keys, the
// turnstiles of a shared one, and how many are to be unlocked.
func (b *batch) keys(ops []*session.Op, unlocks int) [][]byte {
	binary.BigEndian.PutUint64(b.unlocks[:], uint64(unlocks))
	params := b.params[:0]
	shape := shapeOf(ops[0].Tag, ops[0].Mode)
	if shape.pair {
		first, second := arrayHeader(b.arrays[0][:0], oidInt4, len(ops)), arrayHeader(b.arrays[1][:0], oidInt4, len(ops))
		for _, op := range ops {
			first, second = appendElement4(first, op.Tag.ClassID), appendElement4(second, op.Tag.ObjID)
		}
		b.arrays[0], b.arrays[1] = first, second
		params = append(params, first, second)
	} else {
		b.arrays[0] = arrayHeader(b.arrays[0][:0], oidInt8, len(ops))
		for _, op := range ops {
			b.arrays[0] = appendElement8(b.arrays[0], op.Tag)
		}
		params = append(params, b.arrays[0])
	}
	if shape.shared {
		b.arrays[2] = arrayHeader(b.arrays[2][:0], oidInt8, len(ops))
		for _, op := range ops {
			b.arrays[2] = appendElement8(b.arrays[2], op.Turnstile)
		}
		params = append(params, b.arrays[2])
	}
	return append(params, b.unlocks[:])
}

// anyKeys is keys for the single keys of Any.
func (b *batch) anyKeys(op *session.Op, turnstile []byte) [][]byte {
	first := arrayHeader(b.arrays[0][:0], oidInt8, len(op.Any))
	for _, tag := range op.Any {
		first = appendElement8(first, tag)
	}
	b.arrays[0] = first
	return append(b.params[:0], first, turnstile)
}

func oidArray(values []uint32) []byte {
	b := arrayHeader(nil, oidOID, len(values))
	for _, v := range values {
		b = appendElement4(b, v)
	}
	return b
}

// ordinals reads an int8[] of row numbers; nil is empty.
func ordinals(array []byte) (values iter.Seq[int], ok bool) {
	const header, element = 20, 12
	if len(array) > header && (len(array)-header)%element != 0 {
		return nil, false
	}
	return func(yield func(int) bool) {
		for at := header; at+element <= len(array); at += element {
			if !yield(int(binary.BigEndian.Uint64(array[at+4:]))) {
				return
			}
		}
	}, true
}
