package leadercmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A verdict is the result of examining intervals.
type verdict string

const (
	apart   verdict = "apart"   // work of two terms never ran at one time
	unknown verdict = "unknown" // the intervals do not show it
	met     verdict = "met"     // work of two terms ran at one time
)

// stepTolerance is how much two clocks of one machine may differ over an interval: the maximum NTP
// slew (adjtimex: 500 ppm), and the time between two reads.
func stepTolerance(lasted time.Duration) time.Duration { return time.Millisecond + lasted/2000 }

// A finding is the reason why a verdict is not apart.
type finding struct {
	Verdict verdict   `json:"verdict"`
	Reason  string    `json:"reason"`
	First   *interval `json:"first"`
	Second  *interval `json:"second,omitempty"`
}

// An evidence is the result for the intervals of one election.
type evidence struct {
	Election    string         `json:"election"`
	Verdict     verdict        `json:"verdict"`
	Intervals   int            `json:"intervals"`
	Terms       int            `json:"terms"`
	Uncertainty time.Duration  `json:"-"` // "clock_uncertainty" in a document, in seconds
	Closest     *time.Duration `json:"-"` // "closest", the shortest time between two terms
	Findings    []finding      `json:"findings"`
}

// MarshalJSON writes times in seconds.
func (e *evidence) MarshalJSON() ([]byte, error) {
	type plain evidence
	document := struct {
		*plain
		Uncertainty float64  `json:"clock_uncertainty"`
		Closest     *float64 `json:"closest,omitempty"`
	}{plain: (*plain)(e), Uncertainty: e.Uncertainty.Seconds()}
	if e.Closest != nil {
		seconds := e.Closest.Seconds()
		document.Closest = &seconds
	}
	return json.Marshal(document)
}

// examine evaluates the intervals of one election. Between clocks of two machines a difference up
// to uncertainty proves nothing.
func examine(election string, all []*interval, uncertainty time.Duration) *evidence {
	e := &evidence{Election: election, Verdict: apart, Intervals: len(all), Uncertainty: uncertainty, Findings: []finding{}}
	slices.SortStableFunc(all, func(a, b *interval) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.FencingToken, b.FencingToken))
	})
	terms := make(map[string]bool)
	for i, a := range all {
		terms[a.Identity+" "+a.Term] = true
		if a.Ended != nil {
			if wall := a.Ended.Sub(a.Began); (wall - a.lasted).Abs() > stepTolerance(a.lasted) {
				e.find(unknown, a, nil, "the clock was set meanwhile: work lasted %v, and its times are %v apart", a.lasted, wall)
			}
		}
		for _, b := range all[i+1:] {
			if a.Identity == b.Identity && a.Term == b.Term {
				continue // several functions of one leadership
			}
			e.compare(a, b)
			if a.Ended == nil {
				break // the same holds for all that follow
			}
		}
	}
	e.Terms = len(terms)
	return e
}

// compare evaluates two terms, of which a began first by their clocks.
func (e *evidence) compare(a, b *interval) {
	doubt := e.Uncertainty
	if a.Identity == b.Identity || a.clock != "" && a.clock == b.clock {
		doubt = 0
	}
	if a.FencingToken != 0 && b.FencingToken != 0 && a.FencingToken >= b.FencingToken && b.Began.Sub(a.Began) > doubt {
		e.find(met, a, b, "the later one has no greater term")
		return
	}
	if a.Ended == nil {
		e.find(unknown, a, b, "nobody knows when the first one ended: its process was killed, still runs, or its log is cut off")
		return
	}
	gap := b.Began.Sub(*a.Ended)
	if e.Closest == nil || gap < *e.Closest {
		e.Closest = &gap
	}
	switch {
	case gap < -doubt:
		together := -gap
		if b.Ended != nil {
			together = min(together, b.Ended.Sub(b.Began))
		}
		e.find(met, a, b, "they ran at one time for %v, give or take %v", together, doubt)
	case gap <= doubt && doubt > 0:
		e.find(unknown, a, b, "they are %v apart, by clocks that may differ by %v", gap, doubt)
	}
}

func (e *evidence) find(v verdict, first, second *interval, format string, args ...any) {
	e.Findings = append(e.Findings, finding{v, fmt.Sprintf(format, args...), first, second})
	if e.Verdict == apart || v == met {
		e.Verdict = v
	}
}
