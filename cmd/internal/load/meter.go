package load

import (
	"math/bits"
	"sync"
	"time"
)

// An Operation is an operation whose latency is measured.
type Operation int

// The operations. Acquire is measured from the first attempt to the grant.
const (
	Acquire Operation = iota
	Renew
	Release
	operations
)

// Counts are the events of all clients.
type Counts struct {
	Held          int `json:"held"`                   // acquisitions to retry
	Busy          int `json:"busy"`                   // operations that the store was too busy for
	Failed        int `json:"failed"`                 // operations of unknown outcome
	Expired       int `json:"expired"`                // leases whose time ended before their release
	Writes        int `json:"fenced_writes_accepted"` // to the fenced resource
	StaleWrites   int `json:"stale_writes_refused"`
	StaleRenewals int `json:"stale_renewals_refused"`
	StaleReleases int `json:"stale_releases_refused"`
}

// A meter holds the measurements of all clients.
type meter struct {
	mu        sync.Mutex
	latencies [operations]histogram
	counts    Counts
	err       error // the latest
}

func (m *meter) took(o Operation, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latencies[o].add(d)
}

// count counts an event in one of the counts.
func (m *meter) count(one *int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*one++
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

// bucket returns the index of a duration's bucket. Each value below 2^precision has its own, and
// each power of two above has 2^precision buckets.
func bucket(d time.Duration) int {
	v := uint64(max(d, 0)) //nolint:gosec // not negative
	exponent := max(bits.Len64(v)-precision-1, 0)
	return exponent<<precision + int(v>>exponent) //nolint:gosec // below 2^(precision+1)
}

// middle returns the value in the middle of a bucket.
func middle(b int) time.Duration {
	exponent := max(b>>precision-1, 0)
	return time.Duration(b-exponent<<precision)<<exponent + time.Duration(1)<<exponent/2
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucket(d)]++
	h.count++
	h.longest = max(h.longest, d)
}

// quantile returns the duration that a fraction p does not exceed, to about 2 %.
func (h *histogram) quantile(p float64) time.Duration {
	rank := int(p * float64(h.count))
	for b, n := range h.buckets {
		if rank -= int(n); rank < 0 {
			return min(middle(b), h.longest)
		}
	}
	return h.longest
}
