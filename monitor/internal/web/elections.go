package web

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/lease"
)

// An electionView is an election.
type electionView struct {
	*incident.Election

	Leader, Term, Link, Lease string
	Since                     age
	Leaderless                bool
	Members                   []memberView
	HandOvers                 []handOverView
	Silent, MayLead           string // the leader that does not answer and may continue to lead; for how long
}

type memberView struct {
	*incident.Member

	Since age
}

type handOverView struct {
	Time, Node, Term, Led string
}

// A leasesView is the leases of a store.
type leasesView struct {
	Leases []leaseView

	LeaseHeads []head

	More   bool
	Failed bool
}

type leaseView struct {
	Name, State, Holder, Acquired, Left string
	Token                               uint64
	Waiters                             *int // nil = unknown

	left time.Duration
}

// waiting returns the number of waiters, -1 = unknown.
func (l leaseView) waiting() int {
	if l.Waiters == nil {
		return -1
	}
	return *l.Waiters
}

func (q *query) readLeases(asked url.Values) (problem string) {
	return q.readSort(asked, leaseColumns.names()...)
}

// elections shows elections, and leases.
func elections(ctx context.Context, v *view, _ url.Values) {
	v.Title = "Elections and leases"
	v.Parts = []string{"elections"}
	for _, e := range v.state.Picture.Elections {
		v.Elections = append(v.Elections, v.election(e))
	}
	if v.page.config.Leases != nil {
		v.Leases = v.leases(ctx)
	}
}

func (v *view) election(e *incident.Election) electionView {
	ev := electionView{Election: e, Leaderless: true}
	if e.Tag.Valid() {
		ev.Link = keyLink(e.ID)
	}
	var handOvers []incident.HandOver
	leads := func(m *incident.Member) bool { return m.State == "leader" && !m.Process.Silent }
	members := slices.Clone(e.Members)
	slices.SortStableFunc(members, func(a, b incident.Member) int { return b2i(leads(&b)) - b2i(leads(&a)) })
	for i := range members {
		m := &members[i]
		mv := memberView{m, v.age("m/"+e.ID+m.Process.ID+m.Node+m.State, m.Age, true)}
		if leads(m) && ev.Leaderless {
			ev.Leader, ev.Term, ev.Since, ev.Leaderless, ev.Lease = m.Node, m.Term, mv.Since, false, incident.Age(m.Lease)
		}
		ev.Members = append(ev.Members, mv)
		if len(m.HandOvers) > len(handOvers) || leads(m) && len(m.HandOvers) > 0 {
			handOvers = m.HandOvers
		}
	}
	if leader, left := e.SilentLeader(v.At); left > 0 && ev.Leaderless {
		ev.Silent, ev.MayLead = leader.Node, incident.Age(left.Truncate(time.Second))
	}
	for i, h := range handOvers {
		at := v.At.Add(-h.Age)
		hv := handOverView{Time: clock(at), Node: h.Node, Term: h.Term}
		if i > 0 {
			hv.Led = incident.Age((h.Age - handOvers[i-1].Age).Truncate(time.Second))
		}
		ev.HandOvers = append(ev.HandOvers, hv)
	}
	return ev
}

// nameShown is how many characters of a user's text are shown.
const nameShown = 160

// leasesShown is how many leases of a store are listed.
const leasesShown = 200

func (v *view) leases(ctx context.Context) *leasesView {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	lv := &leasesView{LeaseHeads: leaseColumns.heads(&v.Query)}
	for record, err := range v.page.config.Leases(ctx, lease.ListRequest{Limit: leasesShown + 1}) {
		if err != nil {
			lv.Failed = true
			break
		}
		if len(lv.Leases) == leasesShown {
			lv.More = true
			break
		}
		lv.Leases = append(lv.Leases, leaseOf(record))
	}
	leaseColumns.sort(&v.Query, lv.Leases)
	return lv
}

func leaseOf(r lease.Record) leaseView {
	l := leaseView{Name: legible.Quote(r.Name, nameShown), Holder: legible.Quote(r.Holder, nameShown), State: strings.ToLower(r.State.String()), Token: r.Token, Acquired: day(r.AcquiredAt), Waiters: r.Waiters}
	if r.State == lease.Held {
		l.left, l.Left = r.Remaining, incident.Age(r.Remaining.Truncate(time.Second))
	}
	return l
}
