package monitor

import (
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
)

// A silence identifies the sessions of processes that listen and do not answer. Verdicts, the page and the commands all
// use it.
//
// No process reports the locks that a silent process took after its last answer. They are attributed by the name of
// their session. A process that answers may have the same name. A session of that name then belongs to the silent
// process if two conditions hold: it has been idle since before the question, and the others, whose answers were
// complete, do not claim it.
type silence struct {
	asked    time.Time       // by the local clock
	claimed  map[spot]bool   // by processes that answered
	sessions map[uint32]bool // that these processes claimed
	last     map[spot]uint32 // the listening sessions of silent processes, by the spots in their last answers
	carries  map[uint32]uint32
	silent   map[string]uint32 // the listening session of a silent process, by its name
	whole    map[string]bool   // the names of processes that answered: whether all were complete
}

// newSilence evaluates answers. names are the application_names of listening sessions; last holds the last answers of
// silent processes.
func newSilence(asked time.Time, answers introspect.Answers, names map[uint32]string, last map[uint32]memo) *silence {
	s := &silence{
		asked: asked, claimed: map[spot]bool{}, sessions: map[uint32]bool{}, last: map[spot]uint32{}, carries: map[uint32]uint32{},
		silent: map[string]uint32{}, whole: map[string]bool{},
	}
	for i := range answers.Answers {
		a := &answers.Answers[i]
		at, sessions := places(a)
		for _, p := range at {
			s.claimed[p] = true
		}
		for _, pid := range sessions {
			s.sessions[pid] = true
		}
		name := names[a.Session]
		before, seen := s.whole[name]
		s.whole[name] = a.AllLocks == len(a.Locks) && (before || !seen)
	}
	for _, q := range answers.Silent {
		if name := incident.ListenerName(q.ApplicationName); name != "" && s.silent[name] == 0 {
			s.silent[name] = q.Session
		}
		if m, ok := last[q.Session]; ok {
			at, sessions := places(&m.answer)
			for _, p := range at {
				s.last[p] = q.Session
			}
			for _, pid := range sessions {
				s.carries[pid] = q.Session
			}
		}
	}
	return s
}

// places returns the locks that a process said it holds or waits for, and its election and group sessions.
func places(a *introspect.Answer) (at []spot, sessions []uint32) {
	for i := range a.Locks {
		at = append(at, spot{a.Locks[i].Session, a.Locks[i].Tag})
	}
	for i := range a.Waits {
		at = append(at, spot{a.Waits[i].Session, a.Waits[i].Tag})
	}
	for i := range a.Elections {
		sessions = append(sessions, a.Elections[i].Session)
	}
	for _, g := range a.Groups {
		sessions = append(sessions, g.Session)
	}
	return at, sessions
}

// by returns the listening session of the silent process that owns the session of l; 0 = none. now and local are the
// time of the query, by the server's clock and by the local one.
func (s *silence) by(l *Lock, now, local time.Time) uint32 {
	at := spot{l.PID, l.Tag}
	if s == nil || l.PID == 0 || s.claimed[at] || s.sessions[l.PID] {
		return 0
	}
	if listener := s.last[at]; listener != 0 {
		return listener
	}
	if listener := s.carries[l.PID]; listener != 0 {
		return listener
	}
	name := incident.ListenerName(l.ApplicationName)
	listener := s.silent[name]
	if whole, shared := s.whole[name]; listener != 0 && shared {
		idle := l.State != nil && *l.State == "idle" && l.stateChange != nil && l.stateChange.Before(now.Add(s.asked.Sub(local)))
		if !whole || !idle {
			return 0
		}
	}
	return listener
}
