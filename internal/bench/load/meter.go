package load

import (
	"math/bits"
	"sync"
	"time"
)

// An Operation is one whose latency is measured.
type Operation int

// The operations. That of Acquire counts from the first attempt to the grant.
const (
	Acquire Operation = iota
	Renew
	Release
	operations
)

// A Count is something that is counted.
type Count int

// What is counted.
const (
	Held          Count = iota // acquisitions that are to be tried again
	Busy                       // operations that the store had no time for
	Failed                     // operations of unknown outcome
	Expired                    // leases whose time ended before their release
	Writes                     // fenced writes that were accepted
	StaleWrites                // and refused
	StaleRenewals              // that were refused
	StaleReleases              // that were refused
	counts
)

// A meter is that of one client.
type meter struct {
	mu        sync.Mutex
	latencies [operations]histogram
	counts    [counts]int
	err       error // the last
}

func newMeter() *meter { return &meter{} }

func (m *meter) took(o Operation, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latencies[o].add(d)
}

func (m *meter) count(c Count) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[c]++
}

func (m *meter) last(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// A histogram counts durations in buckets that are a 32nd of their value wide.
type histogram struct {
	buckets [64 << precision]uint32
	count   int
	longest time.Duration
}

const precision = 5

// bucket: the values below 2^precision have one each, each power of two above has
// 2^precision.
func bucket(d time.Duration) int {
	v := uint64(max(d, 0)) //nolint:gosec // not negative
	exponent := max(bits.Len64(v)-precision-1, 0)
	return exponent<<precision + int(v>>exponent) //nolint:gosec // below 2^(precision+1)
}

// middle is a value in the middle of a bucket.
func middle(b int) time.Duration {
	exponent := max(b>>precision-1, 0)
	return time.Duration(b-exponent<<precision)<<exponent + time.Duration(1)<<exponent/2
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucket(d)]++
	h.count++
	h.longest = max(h.longest, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
	h.longest = max(h.longest, o.longest)
}

// Count is how many durations there are.
func (h *histogram) Count() int { return h.count }

// quantile is the duration that a part p of all do not exceed, to about 2 %.
func (h *histogram) quantile(p float64) time.Duration {
	rank := int(p * float64(h.count))
	for b, n := range h.buckets {
		if rank -= int(n); rank < 0 {
			return min(middle(b), h.longest)
		}
	}
	return h.longest
}
