package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// Shards is an immutable list of shards.
type Shards struct {
	Names  []string // sorted, each once
	Digest uint64   // of the names
	hashes []uint64 // of the names
	index  map[string]int
}

// NewShards returns the list of these names, in any order. Duplicates count once.
func NewShards(names []string) *Shards {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	s := &Shards{Names: names, hashes: make([]uint64, len(names)), index: make(map[string]int, len(names))}
	digest := sha256.New()
	for i, name := range names {
		s.hashes[i] = Hash(name)
		s.index[name] = i
		_, _ = digest.Write(binary.BigEndian.AppendUint64(nil, s.hashes[i])) // never fails
	}
	s.Digest = binary.BigEndian.Uint64(digest.Sum(nil))
	return s
}

// Index returns the position of a name in Names.
func (s *Shards) Index(name string) (i int, ok bool) {
	i, ok = s.index[name]
	return i, ok
}

// Owners that are not an index in a View's Members.
const (
	Nobody   int32 = -1
	Stranger int32 = -2 // an owner that is not a known member
)

// A View is a driver.View in numbers: an index stands for each member and each shard.
type View struct {
	Members []driver.Member // sorted by identity
	Owners  []int32         // of each shard
	Pins    []int32         // the member that each shard is pinned to, or Nobody; nil = no pins

	hashes   []uint64  // of the members
	refusals []refusal // of the members; nil = no refusals
	plan     []int32   // targets without special cases; nil = not computed
}

// View returns v as numbers.
func (s *Shards) View(v driver.View) *View {
	members := slices.SortedFunc(slices.Values(v.Members), func(a, b driver.Member) int {
		return cmp.Compare(a.Identity, b.Identity)
	})
	w := NewView(members, make([]int32, len(s.Names)))
	w.refusals = s.refusals(members)
	index := make(map[string]int32, len(members))
	for i, m := range members {
		index[m.Identity] = int32(i) //nolint:gosec // there are not so many
	}
	for i, name := range s.Names {
		w.Owners[i] = Nobody
		if owner, ok := v.Owners[name]; ok {
			w.Owners[i] = Stranger
			if m, ok := index[owner]; ok {
				w.Owners[i] = m
			}
		}
	}
	if len(v.Pins) == 0 {
		return w
	}
	w.Pins = make([]int32, len(s.Names))
	for i, name := range s.Names {
		w.Pins[i] = Nobody
		if m, ok := index[v.Pins[name]]; ok {
			w.Pins[i] = m
		}
	}
	return w
}

// NewView returns the View of these members, sorted by identity, and owners.
func NewView(members []driver.Member, owners []int32) *View {
	v := &View{Members: members, Owners: owners, hashes: make([]uint64, len(members))}
	for i, m := range members {
		v.hashes[i] = Hash(m.Identity)
	}
	return v
}

// clone returns a copy that can be changed. It has no plan.
func (v *View) clone() *View {
	return &View{Members: v.Members, Owners: slices.Clone(v.Owners), Pins: v.Pins, hashes: v.hashes, refusals: slices.Clone(v.refusals)}
}
