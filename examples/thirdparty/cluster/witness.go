package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// A witness receives a report from every client that enters or leaves a lock. It judges by
// these reports alone.
type witness struct {
	mu     sync.Mutex
	inside map[string]map[int]bool // lock, client
	tokens map[string]uint64       // the latest of each lock
	visits []visit                 // the latest
	total  int
	twice  []string // violations seen
	fell   []string
}

// A visit is the moment at which a client entered a lock.
type visit struct {
	at     time.Time
	client int
}

// mostVisits is the least number of visits that are kept: some minutes.
const mostVisits = 100_000

func newWitness() *witness {
	return &witness{inside: make(map[string]map[int]bool), tokens: make(map[string]uint64)}
}

// enter records that a client is inside from now on.
func (w *witness) enter(lock string, client int, token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total++
	if len(w.visits) == 2*mostVisits {
		w.visits = slices.Clone(w.visits[mostVisits:])
	}
	w.visits = append(w.visits, visit{time.Now(), client})
	for other := range w.inside[lock] {
		w.twice = append(w.twice, fmt.Sprintf("client %d went into %s while client %d was inside", client, lock, other))
	}
	if w.inside[lock] == nil {
		w.inside[lock] = make(map[int]bool)
	}
	w.inside[lock][client] = true
	if last := w.tokens[lock]; token <= last {
		w.fell = append(w.fell, fmt.Sprintf("client %d went into %s with token %d after one with %d", client, lock, token, last))
	}
	w.tokens[lock] = max(w.tokens[lock], token)
}

// exit records that a client has left.
func (w *witness) exit(lock string, client int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.inside[lock], client)
}

// wrong returns the violations so far.
func (w *witness) wrong() (twice, fell []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.twice), slices.Clone(w.fell)
}

// count returns the number of visits and the number of clients inside.
func (w *witness) count() (total, inside int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, clients := range w.inside {
		inside += len(clients)
	}
	return w.total, inside
}

// since returns the visits after a moment, in order.
func (w *witness) since(from time.Time) []visit {
	w.mu.Lock()
	defer w.mu.Unlock()
	first, _ := slices.BinarySearchFunc(w.visits, from, func(v visit, t time.Time) int { return v.at.Compare(t) })
	return slices.Clone(w.visits[first:])
}

// gap returns the longest time without a visit between a moment and the last of these visits.
func gap(from time.Time, visits []visit) (longest time.Duration) {
	for _, v := range visits {
		longest = max(longest, v.at.Sub(from))
		from = v.at
	}
	return longest
}
