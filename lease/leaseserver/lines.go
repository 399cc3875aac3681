package leaseserver

import (
	"cmp"
	"slices"
)

// Lines are who waits for which lock at which server, as one server has heard. Those who wait
// for a lock stand in the order of their keys. The key of a request is given when it is first
// heard of, by each server for itself, which comes to the same because all hear the same.
// Whoever missed that takes over the key from the server at which the request waits.
type lines struct {
	clock   uint64 // no key is greater
	places  map[place]standing
	locks   map[string][]spot
	digests map[string]uint64 // by server: of its places
}

// A place is that of a request: the server at which it waits, and its number there.
type place struct {
	server string
	number uint64
}

// A standing is where a place is to be found.
type standing struct {
	name string
	key  uint64
}

// A spot is a place in the line for a lock.
type spot struct {
	key uint64
	place
}

func newLines() lines {
	return lines{places: make(map[place]standing), locks: make(map[string][]spot), digests: make(map[string]uint64)}
}

// compareSpots has an order for equal keys, too, which is the same at all servers.
func compareSpots(a, b spot) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.number, b.number), cmp.Compare(a.server, b.server))
}

// enter puts a place into the line for a lock, by its key; with the key 0 at the end, if it
// is not there yet.
func (l *lines) enter(at place, name string, key uint64) {
	if s, known := l.places[at]; known && (key == 0 || s == standing{name, key}) {
		return
	}
	l.leave(at)
	if key == 0 {
		key = l.clock
		if key++; key == 0 { // somebody has sent the greatest: the numbers decide
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

// seen sees to it that later keys are greater.
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

// drop forgets who waits at a server.
func (l *lines) drop(server string) {
	for at := range l.places {
		if at.server == server {
			l.leave(at)
		}
	}
	delete(l.digests, server)
}

// digest is what the digest of a set of numbers, which is all of these XORed, has of one: SplitMix64 of
// it, each bit of which depends on each of the number's. Sets of neighbors, which is what there is, must not
// come to the same.
func digest(number uint64) uint64 {
	h := number + 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
