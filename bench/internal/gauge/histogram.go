// Package gauge measures durations without keeping each of them.
package gauge

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets that are 3 % wide. The zero value is
// empty. It is not safe for concurrent use: each worker has its own, to Merge.
type Histogram struct {
	counts [buckets]uint32
	n      uint64
	max    time.Duration
}

const (
	perOctave = 32
	buckets   = 60 * perOctave
)

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d))]++
	h.n++
	h.max = max(h.max, d)
}

func bucket(ns uint64) int {
	octave := max(bits.Len64(ns)-6, 0)
	return octave*perOctave + int(ns>>octave)
}

// middle is the duration in the middle of a bucket.
func middle(b int) time.Duration {
	octave := max(b/perOctave-1, 0)
	low := uint64(b-octave*perOctave) << octave
	return time.Duration(low + (uint64(1)<<octave)/2)
}

// Merge adds what another histogram counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, c := range other.counts {
		h.counts[i] += c
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// Count is how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Max is the longest duration, exactly; 0 if there is none.
func (h *Histogram) Max() time.Duration { return h.max }

// At is the quantile q, 0 to 1; 0 if there is no duration.
func (h *Histogram) At(q float64) time.Duration {
	rank := uint64(q * float64(h.n))
	var below uint64
	for b, c := range h.counts {
		below += uint64(c)
		if below > rank {
			return min(middle(b), h.max)
		}
	}
	return h.max
}
