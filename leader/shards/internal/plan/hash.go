package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Hash returns the hash of a shard's name or a member's identity: the first eight bytes, big-endian, of its
// SHA-256.
func Hash(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:])
}

// mix is the finalizer of SplitMix64: a permutation of 64-bit numbers in which each bit of x changes half of
// the result's bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// A score is a member's bid for a shard in weighted rendezvous hashing: weight / -log2(u), where u is a
// number between 0 and 1 from the hash of both. A member of twice the weight has the highest score for twice
// as many shards. All of it is integers, so that every processor computes the same.
type score struct {
	weight uint64
	hash   uint64
}

// scoreOf returns the score of a member for a shard; member and shard are their Hashes.
func scoreOf(member, shard uint64, weight int) score {
	return score{uint64(weight), mix(shard ^ mix(member))} //nolint:gosec // a weight is positive
}

// beats reports whether s is higher than o. Only scores of the same hash and weight are equal.
func (s score) beats(o score) bool {
	if s.weight != o.weight {
		// weight/depth > o.weight/o.depth
		hi, lo := bits.Mul64(s.weight, depth(o.hash))
		ohi, olo := bits.Mul64(o.weight, depth(s.hash))
		if hi != ohi || lo != olo {
			return hi > ohi || hi == ohi && lo > olo
		}
		if s.hash == o.hash {
			return s.weight > o.weight
		}
	}
	return s.hash > o.hash
}

// depthBits is the number of bits of a depth after the point.
const depthBits = 32

// depth returns -log2((hash+1)/2^64), rounded up, with depthBits bits after the point; at least 1.
func depth(hash uint64) uint64 {
	hash += 1
	if hash == 0 { // hash was the greatest number: log2(1)
		return 1
	}
	whole := uint64(bits.LeadingZeros64(hash)) + 1 // hash/2^64 is 2^-whole times m, 1 <= m < 2
	m := hash << (whole - 1)                       // with its highest bit set: m, with 63 bits after the point
	var fraction uint64                            // log2(m)
	for range depthBits {
		hi, lo := bits.Mul64(m, m) // 126 bits after the point
		fraction <<= 1
		if hi>>63 != 0 { // m*m >= 2
			fraction |= 1
			m = hi
		} else {
			m = hi<<1 | lo>>63
		}
	}
	return whole<<depthBits - fraction
}
