package leased

import (
	"context"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
)

// A sight is what a Look found that read all.
type sight struct {
	version uint64 // of its View; 0 = there was none
	group   uint64 // what the group's leases were
	settled bool   // each shard was owned by a session that lasts: no change comes unannounced
	at      time.Time
}

// lookAll is how many times the ttl a Look may go by what was seen before: so that nothing that went wrong lasts.
const lookAll = 4

// Look lists the leases of the group: members, each with the number of its changes, pins and drains. If they
// are as at the last Look, so is who owns what; else it lists the leases of shards.
func (s *session) Look(ctx context.Context, known uint64) (driver.View, error) {
	if err := s.lasts(); err != nil {
		return driver.View{}, s.failed("looking", err)
	}
	if err := s.publish(ctx); err != nil { // what could not be before
		return driver.View{}, s.failed("looking", err)
	}
	began := time.Now()
	group, err := s.list(ctx, s.config.Name+inGroup)
	if err != nil {
		return driver.View{}, s.failed("looking", err)
	}
	delete(group, ofBell)
	s.check(group)
	s.extend(ctx, group)
	digest := digestOf(group)
	if v := s.seen; known != 0 && known == v.version && v.settled && v.group == digest && began.Sub(v.at) < lookAll*s.ttlNow() {
		return driver.View{Version: known}, nil
	}
	owned, err := s.list(ctx, s.config.Name+inShards) // after the group: what changes between is seen with the next Look
	if err != nil {
		return driver.View{}, s.failed("looking", err)
	}
	v, settled := viewOf(group, owned)
	s.seen = sight{version: v.Version, group: digest, settled: settled, at: began}
	return v, nil
}

// check notices that what was published last is not to be seen: a request that was given up came
// after it.
func (s *session) check(group map[string]lease.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := group[ofMember+s.id]; ok && r.Metadata[metaChanges] != strconv.FormatUint(s.told, 10) {
		s.changes++
	}
}

func (s *session) ttlNow() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ttl
}

var seed = maphash.MakeSeed()

func hash(parts ...string) uint64 { return maphash.Comparable(seed, strings.Join(parts, "\x00")) }

// digestOf is the same for the same leases of a group, whatever is renewed.
func digestOf(group map[string]lease.Record) (digest uint64) {
	for name, r := range group {
		digest += hash(name, r.Holder)
		for key, value := range r.Metadata {
			digest += hash(name, key, value)
		}
	}
	return digest
}

// viewOf makes a View of leases. Its version is the same for the same content in all of this
// process. It is settled if every shard's owner is a session that lasts.
func viewOf(group, owned map[string]lease.Record) (v driver.View, settled bool) {
	v = driver.View{Owners: make(map[string]string, len(owned)), Pins: map[string]string{}, Version: 1}
	drained := map[string]bool{}
	latest := map[string]time.Time{}
	index := map[string]int{}
	for name, r := range group {
		kind, part, _ := strings.Cut(name, "/")
		switch value := r.Metadata[metaValue]; kind + "/" {
		case ofMember:
			m, ok := memberOf(r)
			at, twice := index[m.Identity]
			switch {
			case !ok:
			case !twice:
				index[m.Identity], latest[m.Identity] = len(v.Members), r.AcquiredAt
				v.Members = append(v.Members, m)
			case r.AcquiredAt.After(latest[m.Identity]): // its session before this one has not ended
				v.Members[at], latest[m.Identity] = m, r.AcquiredAt
			}
		case ofPin:
			if shard, ok := unescape(part); ok && value != "" {
				v.Pins[shard] = value
				v.Version += hash(ofPin, shard, value)
			}
		case ofDrain:
			drained[value] = true
		}
	}
	for i := range v.Members {
		m := &v.Members[i]
		m.Draining = m.Draining || drained[m.Identity]
		v.Version += maphash.Comparable(seed, *m)
	}
	settled = true
	for name, r := range owned {
		shard, ok := unescape(name)
		if !ok {
			continue
		}
		v.Owners[shard] = r.Holder
		v.Version += hash(inShards, shard, r.Holder)
		if _, lasts := group[ofMember+r.Metadata[metaSession]]; !lasts {
			settled = false
		}
	}
	if v.Version == 0 {
		v.Version = 1
	}
	return v, settled
}
