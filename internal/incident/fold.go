package incident

import "slices"

// slow are the verdicts on a key whose holder does not let go of it.
var slow = []string{HeldLong, QueueGrows, StarvedWriter}

// whose are slow, and that the holder is a stranger.
var whose = append([]string{Foreign}, slow...)

// folds name the verdicts that end with another one of the same key. The first that fits applies.
var folds = []struct {
	cause   string
	effects []string
	any     bool // else only if the cause is about the only holder of the key
}{
	{Deadlock, whose, true},
	{ElectionClash, []string{CannotConnect}, true},
	{NoLeader, []string{CannotConnect, Foreign}, true},
	{HolderSilent, slow, false},
	{Pooler, slow, false},
	{Prepared, slow, false},
	{HolderIdle, whose, false},
	{Foreign, slow, false},
	{HeldLong, []string{QueueGrows}, false},
}

// folded moves consequences to their causes. A note has no consequences, because people may hide notes.
func folded(all []Verdict) []Verdict {
	type place struct{ name, key string }
	at := map[place]int{}
	for i := range all {
		for _, id := range all[i].Keys() {
			at[place{all[i].Name, id}] = i
		}
	}
	cause := func(v *Verdict) (int, bool) {
		for _, f := range folds {
			if i, ok := at[place{f.cause, v.KeyID}]; ok && slices.Contains(f.effects, v.Name) && (f.any || all[i].sole) && all[i].Severity.rank() <= v.Severity.rank() {
				return i, true
			}
		}
		return 0, false
	}
	kept := make([]Verdict, 0, len(all))
	causes := make([]int, len(all))
	for i := range all {
		c, follows := cause(&all[i])
		if causes[i] = -1; follows && all[i].KeyID != "" {
			causes[i] = c
		}
	}
	for i := range all {
		root := i
		for causes[root] >= 0 {
			root = causes[root]
		}
		if root != i {
			all[root].Consequences = append(all[root].Consequences, all[i])
		}
	}
	for i := range all {
		if causes[i] < 0 {
			kept = append(kept, all[i])
		}
	}
	return kept
}
