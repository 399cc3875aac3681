package judge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A Moment is a time in nanoseconds of any one clock. It may be known only to lie between two times.
type Moment struct{ Earliest, Latest int64 }

// At returns the Moment that is known exactly.
func At(t int64) Moment { return Moment{t, t} }

// A Hold is the time for which one client held a key.
type Hold struct {
	Key, Who   string
	Token      uint64 // 0 = none
	Exclusive  bool   // nobody else may hold the key meanwhile
	Begin, End Moment
}

func (h Hold) String() string {
	return fmt.Sprintf("%s on %q with token %d from %v to %v", h.Who, h.Key, h.Token, h.Begin, h.End)
}

// certain reports whether the key was surely held for a time: from Begin.Latest to End.Earliest.
func (h Hold) certain() bool { return h.Begin.Latest < h.End.Earliest }

// Holds returns what is wrong with holds of keys, each of which has slots. It finds more holds at once than slots, any hold
// at the same time as an exclusive one, and tokens that do not rise. Holds are legal if there are times within their
// Moments at which each can have begun and ended without any of this. Tokens of holds that began at about the same time may
// have any order.
func Holds(holds []Hold, slots int) error {
	byKey := make(map[string][]Hold)
	for _, h := range holds {
		byKey[h.Key] = append(byKey[h.Key], h)
	}
	var wrong []error
	for _, all := range byKey {
		slices.SortStableFunc(all, func(a, b Hold) int { return cmp.Compare(a.Begin.Latest, b.Begin.Latest) })
		wrong = append(wrong, overlap(all, slots), order(all))
	}
	return errors.Join(wrong...)
}

// overlap returns the first overlap of holds of one key, in the order of their begins.
func overlap(all []Hold, slots int) error {
	var certain, inside []Hold
	for _, h := range all {
		if !h.certain() {
			continue
		}
		certain = append(certain, h)
		inside = slices.DeleteFunc(inside, func(o Hold) bool { return o.End.Earliest <= h.Begin.Latest })
		if !fits(h, inside, slots) {
			return fmt.Errorf("%v is beside %v", h, inside)
		}
		inside = append(inside, h)
	}
	for _, h := range all {
		if !h.certain() && !fitsSomewhere(h, certain, slots) {
			return fmt.Errorf("at no moment was there room for %v", h)
		}
	}
	return nil
}

// fits reports whether a hold may be beside others.
func fits(h Hold, others []Hold, slots int) bool {
	alone := func(o Hold) bool { return o.Exclusive }
	return len(others) < slots && !slices.ContainsFunc(others, alone) && (!h.Exclusive || len(others) == 0)
}

// fitsSomewhere reports whether a hold that may have been short had a moment at which there was room for it. The most room
// is at the first possible moment, or when another hold ended.
func fitsSomewhere(h Hold, certain []Hold, slots int) bool {
	from, to := max(h.Begin.Earliest, h.End.Earliest), min(h.Begin.Latest, h.End.Latest)
	moments := []int64{from}
	for _, o := range certain {
		if from < o.End.Earliest && o.End.Earliest <= to {
			moments = append(moments, o.End.Earliest)
		}
	}
	return slices.ContainsFunc(moments, func(at int64) bool {
		others := slices.DeleteFunc(slices.Clone(certain), func(o Hold) bool { return at <= o.Begin.Latest || o.End.Earliest <= at })
		return fits(h, others, slots)
	})
}

// order returns the first token of a key that is not greater than one that was granted before it was requested. The holds
// are in the order of their begins.
func order(all []Hold) error {
	asked := slices.SortedStableFunc(slices.Values(all), func(a, b Hold) int { return cmp.Compare(a.Begin.Earliest, b.Begin.Earliest) })
	var last Hold // with the greatest token of those before
	for _, h := range asked {
		for len(all) > 0 && all[0].Begin.Latest < h.Begin.Earliest {
			if all[0].Token > last.Token {
				last = all[0]
			}
			all = all[1:]
		}
		if h.Token != 0 && h.Token <= last.Token {
			return fmt.Errorf("%v comes after %v", h, last)
		}
	}
	return nil
}
