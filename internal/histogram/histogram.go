// Package histogram measures durations without storing each of them.
package histogram

import (
	"math/bits"
	"time"
)

// A Histogram counts durations in buckets that are 3 % wide. The zero value is
// empty. It is not safe for concurrent use: give each worker its own, and Merge them.
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

// middle returns the duration in the middle of a bucket.
func middle(b int) time.Duration {
	octave := max(b/perOctave-1, 0)
	low := uint64(b-octave*perOctave) << octave
	return time.Duration(low + (uint64(1)<<octave)/2)
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, c := range other.counts {
		h.counts[i] += c
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// Count returns how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Max returns the exact longest duration, or 0 if there is none.
func (h *Histogram) Max() time.Duration { return h.max }

// At returns the quantile q, 0 to 1, or 0 if there is no duration.
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
