package postgres

import (
	"sync"
	"time"
)

// A room is how many locks a node may take before it counts those of the server again, which takes the longer the
// more there are. It is a sixteenth of what was free, for a second: sixteen nodes that count at the same moment
// stay within the limit.
type room struct {
	mu    sync.Mutex
	left  int64
	until time.Time
}

// limit returns the limit for a claim of so many, or 0 if nothing is to be counted.
func (r *room) limit(limit int64, wanted int) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int64(wanted) > r.left || !time.Now().Before(r.until) {
		return limit
	}
	r.left -= int64(wanted)
	return 0
}

// counted notes how many locks there were before a claim, and what it took; 0 = they were not counted.
func (r *room) counted(limit, locks int64, took int) {
	if locks == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = max(limit-locks-int64(took), 0) / 16
	r.until = time.Now().Add(time.Second)
}
