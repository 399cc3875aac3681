package overview

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/monitor/fleet"
)

// A Section is a table about one idea: shards, ticks, mailboxes or leases.
type Section struct {
	Header []string
	Lines  []SectionLine
}

// A SectionLine is one line of a Section.
type SectionLine struct {
	Cells   []string
	Trouble bool
}

func (s *Section) add(trouble bool, cells ...string) {
	for i := range cells {
		cells[i] = legible.Clamp(orDash(cells[i]), widest)
	}
	s.Lines = append(s.Lines, SectionLine{cells, trouble})
}

// Fleet returns the sections of a Fleet that have lines. nil gives none.
func Fleet(f *fleet.Fleet) (all []Section) {
	if f == nil {
		return nil
	}
	leases := Section{Header: []string{"LEASE", "STATE", "HOLDER", "TOKEN", "LEFT"}}
	for _, l := range f.Leases {
		leases.lease(l)
	}
	for _, s := range []Section{groups(f), jobs(f), mailboxes(f), leases} {
		if len(s.Lines) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// ServerLeases returns the section of a lock server's leases, if it has any. In contrast to a table, a server knows who
// waits.
func ServerLeases(all []fleet.Lease) []Section {
	s := Section{Header: []string{"LEASE OF SERVER", "STATE", "HOLDER", "TOKEN", "LEFT", "WAITERS"}}
	for _, l := range all {
		waiters := ""
		if l.Waiters != nil && *l.Waiters > 0 {
			waiters = strconv.Itoa(*l.Waiters)
		}
		s.lease(l, waiters)
	}
	if len(s.Lines) == 0 {
		return nil
	}
	return []Section{s}
}

// Unread returns the section of what was not read, with the reason.
func Unread(what, why string) Section {
	s := Section{Header: []string{"NOT READ", "WHY"}}
	s.add(true, what, why)
	return s
}

func groups(f *fleet.Fleet) Section {
	s := Section{Header: []string{"SHARDS OF", "NODE", "OWNED", "FAIR", "PINNED", "STATE"}}
	for _, g := range f.Groups {
		pins := map[string]int{}
		for _, shard := range g.List {
			pins[shard.Pin]++
		}
		for _, n := range g.Nodes {
			states := incident.NodeStates(n.Away, n.Drained, n.Draining)
			if n.Refuses {
				states = append(states, "refuses")
			}
			s.add(len(states) > 0, g.Name, n.Identity, strconv.Itoa(n.Owned), strconv.Itoa(n.Fair), strconv.Itoa(pins[n.Identity]), strings.Join(states, ", "))
			delete(pins, n.Identity)
		}
		delete(pins, "")
		for _, absent := range slices.Sorted(maps.Keys(pins)) {
			s.add(true, g.Name, absent, "0", "0", strconv.Itoa(pins[absent]), "takes no part")
		}
		if free := g.Shards - g.Owned; free > 0 {
			s.add(true, g.Name, "nobody", strconv.Itoa(free), "0", "0", "")
		}
		if g.Moves > 0 {
			s.add(false, g.Name, "all", strconv.Itoa(g.Owned), strconv.Itoa(g.Shards), "", fmt.Sprintf("%d moved in the last minute", g.Moves))
		}
	}
	return s
}

func jobs(f *fleet.Fleet) Section {
	s := Section{Header: []string{"TICKS OF", "LAST", "STATE", "BY", "TOOK", "NEXT", "MISSED"}}
	for _, j := range f.Jobs {
		took := ""
		if !j.Last.Ended.IsZero() {
			took = Duration(j.Last.Ended.Sub(j.Last.Began))
		}
		missed := ""
		if n := len(j.Missed); n > 0 {
			missed = fmt.Sprintf("%d, the last %s", n, day(j.Missed[0]))
		}
		s.add(missed != "" || j.Last.State == "FAILED", j.Name, day(j.Last.Tick), strings.ToLower(j.Last.State), j.Last.Node, took, day(j.Next), missed)
	}
	return s
}

func mailboxes(f *fleet.Fleet) Section {
	s := Section{Header: []string{"MAILBOX", "MESSAGES", "READY", "OLDEST", "RUNNING", "STOPPED", "DEAD", "NODES"}}
	for _, b := range f.Mailboxes {
		oldest := ""
		if b.Oldest > 0 {
			oldest = Duration(b.Oldest)
		}
		s.add(b.Stopped+b.Dead > 0, b.Name, fmt.Sprint(b.Messages), fmt.Sprint(b.Ready), oldest, fmt.Sprint(b.Running), fmt.Sprint(b.Stopped), fmt.Sprint(b.Dead), strconv.Itoa(len(b.Nodes)))
	}
	return s
}

func (s *Section) lease(l fleet.Lease, more ...string) {
	left := ""
	if l.Left > 0 {
		left = Duration(l.Left)
	}
	s.add(l.State == "EXPIRED", append([]string{l.Name, strings.ToLower(l.State), l.Holder, strconv.FormatUint(l.Token, 10), left}, more...)...)
}

func day(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateTime)
}
