package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/leader/shards/driver"
)

// maxRefusals is the maximum number of shards that a member can refuse by name. A member that refuses more
// refuses all.
const maxRefusals = 128

// RefuseAll is the announcement of a member that can claim nothing.
const RefuseAll = "*"

// Refusals returns the text by which a member announces the shards that it cannot claim now. The order of
// names does not matter. "" = none.
func Refusals(names []string) string {
	if len(names) > maxRefusals {
		return RefuseAll
	}
	hashes := make([]string, len(names))
	for i, name := range names {
		hashes[i] = strconv.FormatUint(Hash(name), 16)
	}
	slices.Sort(hashes)
	return strings.Join(slices.Compact(hashes), ",")
}

// A refusal is the set of shards that a member cannot claim.
type refusal struct {
	all  bool
	some map[int]bool // shards
}

// refusals parses the announcements of members. Unknown parts, such as the hash of a shard that is not in the
// list, refuse nothing.
func (s *Shards) refusals(members []driver.Member) []refusal {
	var all []refusal
	var hashes map[uint64]int
	for m, member := range members {
		if member.Refuses == "" {
			continue
		}
		if all == nil {
			all, hashes = make([]refusal, len(members)), make(map[uint64]int, len(s.hashes))
			for i, hash := range s.hashes {
				hashes[hash] = i
			}
		}
		all[m] = refusal{member.Refuses == RefuseAll, map[int]bool{}}
		for text := range strings.SplitSeq(member.Refuses, ",") {
			hash, err := strconv.ParseUint(text, 16, 64)
			if i, ok := hashes[hash]; ok && err == nil {
				all[m].some[i] = true
			}
		}
	}
	return all
}

// refuses reports whether member m has announced that it cannot claim shard i.
func (v *View) refuses(m int32, i int) bool { return v.refusals != nil && v.refusals[m].some[i] }

// refusesAll reports whether member m has announced that it can claim nothing.
func (v *View) refusesAll(m int) bool { return v.refusals != nil && v.refusals[m].all }

// Accepted reports whether a member, except those that except selects, would claim shard i: it has the same
// list, does not drain, and does not refuse the shard.
func (v *View) Accepted(s *Shards, i int, except func(identity string) bool) bool {
	for m, member := range v.Members {
		if !except(member.Identity) && member.List == s.Digest && !member.Draining && !v.refusesAll(m) && !v.refuses(int32(m), i) { //nolint:gosec // an index
			return true
		}
	}
	return false
}
