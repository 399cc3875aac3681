package actions

import (
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"
)

// maxTickets is how many of them there are at most.
const maxTickets = 1000

// tickets are values that last for a limited time. Each has a random id, which means nothing after a restart.
type tickets[T any] struct {
	lasts  time.Duration
	evicts bool // if there are too many, the one that ends next makes room for a new one

	mu    sync.Mutex
	known map[[sha256.Size]byte]ticket[T] // by the digest of the id
}

type ticket[T any] struct {
	value T
	ends  time.Time
}

// add returns the id of a new ticket. It reports false if there are too many and none makes room.
func (t *tickets[T]) add(value T) (id string, ok bool) {
	id, now := rand.Text(), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[[sha256.Size]byte]ticket[T]{}
	}
	var oldest [sha256.Size]byte
	for key, one := range t.known {
		if one.ends.Before(now) {
			delete(t.known, key)
		} else if first, ok := t.known[oldest]; !ok || one.ends.Before(first.ends) {
			oldest = key
		}
	}
	if len(t.known) >= maxTickets {
		if !t.evicts {
			return "", false
		}
		delete(t.known, oldest)
	}
	t.known[sha256.Sum256([]byte(id))] = ticket[T]{value, now.Add(t.lasts)}
	return id, true
}

// find returns the value of a ticket that has not ended.
func (t *tickets[T]) find(id string) (value T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.known[sha256.Sum256([]byte(id))]
	return one.value, ok && !time.Now().After(one.ends)
}

// remove ends a ticket, and reports whether it was there: each can be removed once.
func (t *tickets[T]) remove(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := sha256.Sum256([]byte(id))
	_, ok := t.known[key]
	delete(t.known, key)
	return ok
}
