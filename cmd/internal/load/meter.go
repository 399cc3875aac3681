package load

import (
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/histogram"
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
	latencies [operations]histogram.Histogram
	counts    Counts
	err       error // the latest
}

func (m *meter) took(o Operation, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latencies[o].Add(d)
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
