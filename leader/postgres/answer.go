package postgres

import (
	"slices"
	"time"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/namespace"
)

// Introspect implements driver.Introspector: the candidate answers status queries; see package introspect.
func (b *Backend) Introspect(c driver.Candidate) (leave func()) {
	b.name = b.nameIn(c.Standing())
	m := introspect.Join(introspect.Member{
		Conn: b.config.ConnConfig, BeforeConnect: b.config.BeforeConnect, ApplicationName: c.Standing().Identity,
		Config: b.config.Answer, Source: answerer{b, c}, Logger: b.config.Logger,
	})
	b.answers.Store(m)
	return func() {
		b.answers.Store(nil)
		m.Leave()
	}
}

// An answerer answers status queries about a candidate.
type answerer struct {
	backend   *Backend
	candidate driver.Candidate
}

var _ introspect.Source = answerer{}

// Connected implements introspect.Source.
func (a answerer) Connected() bool { return a.backend.pid.Load() != 0 }

// Answer implements introspect.Source.
func (a answerer) Answer(q introspect.Question, into *introspect.Answer) {
	b := a.backend
	tag, text := b.config.Key.Tag(), b.config.Key.String()
	tags := []namespace.Tag{tag, b.election.Guard()}
	if !q.Matches(tag, text) && !slices.ContainsFunc(tags, func(t namespace.Tag) bool { return q.Matches(t, text) }) {
		return
	}
	s, now := a.candidate.Standing(), time.Now()
	e := introspect.Election{
		Name: s.Name, Key: text, Tags: tags, Class: b.election.ClassID(), Node: s.Identity, State: s.State, Leader: s.Leader, StandsBack: s.StandsBack,
		Lease: s.Lease, Session: b.pid.Load(),
	}
	if !s.Since.IsZero() {
		e.Age = now.Sub(s.Since)
	}
	if !s.Term.IsZero() {
		e.Term = s.Term.String()
	}
	if s.Err != nil {
		e.Error = s.Err.Error()
	}
	for _, h := range s.HandOvers {
		e.HandOvers = append(e.HandOvers, introspect.HandOver{Age: now.Sub(h.At), Node: h.Identity, Term: h.Term.String()})
	}
	into.Elections = append(into.Elections, e)
}

// Request implements introspect.Source.
func (a answerer) Request(r introspect.Request) []introspect.Reply {
	if r.Tag != a.backend.config.Key.Tag() || r.Kind != introspect.AskResign && !r.StandBack() {
		return nil
	}
	s, allowed := a.candidate.Standing(), a.backend.config.Answer.AllowResign
	follows := slices.Contains([]string{"stopped", "follower", "acquiring"}, s.State)
	if r.StandBack() && allowed && (follows || s.State == "releasing") { // this node follows next
		a.candidate.StandBack(r.To)
	}
	if r.StandBack() || follows {
		return nil
	}
	reply := introspect.Reply{Key: a.backend.config.Key.String()}
	switch {
	case !allowed:
		reply.Refused = "the program does not allow it: Config.Answer.AllowResign is not set"
	case r.To == s.Identity:
		reply.Done, reply.Note = true, "it leads"
	default:
		a.candidate.Resign()
		reply.Done, reply.Note = true, "its work is drained, then another candidate leads"
	}
	return []introspect.Reply{reply}
}
