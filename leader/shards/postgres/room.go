package postgres

import (
	"sync"
	"time"
)

// A room is the number of locks that a node may take before it counts those of the server again. Counting
// takes longer the more locks there are. The room is a sixteenth of the free locks, for a second: sixteen
// nodes that count at the same moment stay within the limit.
type room struct {
	mu    sync.Mutex
	left  int64
	until time.Time
}

// limit returns the limit for a claim of wanted shards, or 0 if the claim need not count locks.
func (r *room) limit(limit int64, wanted int) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if int64(wanted) > r.left || !time.Now().Before(r.until) {
		return limit
	}
	r.left -= int64(wanted)
	return 0
}

// counted records the number of locks before a claim, and how many it took. locks is 0 if they were not
// counted.
func (r *room) counted(limit, locks int64, took int) {
	if locks == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = max(limit-locks-int64(took), 0) / 16
	r.until = time.Now().Add(time.Second)
}
