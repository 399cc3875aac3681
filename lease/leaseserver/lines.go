package leaseserver

import (
	"cmp"
	"slices"
)

// Lines are this server's view of all wait queues, of all servers. Places in a queue are ordered by
// their keys. Each server gives a request its key when it first receives its message. All servers
// give the same key, because all receive the same messages. A server that missed the message takes
// over the key from the server at which the request waits.
type lines struct {
	clock   uint64 // no key is greater
	places  map[place]standing
	locks   map[string][]spot
	digests map[string]uint64 // by server: of its places
}

// A place identifies a request: the server at which it waits, and its number there.
type place struct {
	server string
	number uint64
}

// A standing locates a place in a queue.
type standing struct {
	name string
	key  uint64
}

// A spot is a place in the queue for a lock.
type spot struct {
	key uint64
	place
}

func newLines() lines {
	return lines{places: make(map[place]standing), locks: make(map[string][]spot), digests: make(map[string]uint64)}
}

// compareSpots orders equal keys too, in the same way at all servers.
func compareSpots(a, b spot) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.number, b.number), cmp.Compare(a.server, b.server))
}

// enter puts a place into the queue for a lock, by its key. With key 0, it goes to the end if it is
// not in the queue yet.
func (l *lines) enter(at place, name string, key uint64) {
	if s, known := l.places[at]; known && (key == 0 || s == standing{name, key}) {
		return
	}
	l.leave(at)
	if key == 0 {
		key = l.clock
		if key++; key == 0 { // the greatest key was sent: the numbers decide
			key--
		}
	}
	l.seen(key)
	line := l.locks[name]
	i, _ := slices.BinarySearchFunc(line, spot{key, at}, compareSpots)
	l.locks[name] = slices.Insert(line, i, spot{key, at})
	l.places[at] = standing{name, key}
	l.digests[at.server] ^= digest(at.number)
}

// seen makes later keys greater than key.
func (l *lines) seen(key uint64) { l.clock = max(l.clock, key) }

func (l *lines) leave(at place) {
	s, known := l.places[at]
	if !known {
		return
	}
	line := l.locks[s.name]
	if i, found := slices.BinarySearchFunc(line, spot{s.key, at}, compareSpots); found {
		line = slices.Delete(line, i, i+1)
	}
	if l.locks[s.name] = line; len(line) == 0 {
		delete(l.locks, s.name)
	}
	delete(l.places, at)
	l.digests[at.server] ^= digest(at.number)
}

// drop forgets the waiters of a server.
func (l *lines) drop(server string) {
	for at := range l.places {
		if at.server == server {
			l.leave(at)
		}
	}
	delete(l.digests, server)
}

// digest returns a number's part of a set's digest, which is the XOR of all its parts. It uses
// SplitMix64: each bit of the result depends on each bit of the number. Sets of neighboring
// numbers, which are the usual ones, must have different digests.
func digest(number uint64) uint64 {
	h := number + 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
