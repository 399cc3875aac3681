package monitor

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// How often the processes are asked at most, and how long the monitor waits for a silent one. Each question
// briefly blocks every commit with notifications in the database (NOTIFY, PostgreSQL manual, Notes).
const (
	askEvery   = 900 * time.Millisecond
	askAgain   = 10 * time.Second // after an error, which will persist: a standby, a pooler
	askTimeout = 500 * time.Millisecond
	// How long it waits for a process that did not answer the question before. A busy process needs that time.
	askLonger = time.Second
)

// A spot is a session's place at a lock.
type spot struct {
	pid uint32
	tag namespace.Tag
}

// A heard holds the last answers of the processes.
type heard struct {
	at      time.Time // by the local clock, when the answers had arrived
	answers introspect.Answers
	problem string // why there are no answers

	texts map[namespace.Tag]string // of the keys
	holds map[spot]time.Time       // since when, by the local clock
	waits map[spot]time.Time
	keys  map[namespace.Tag]namespace.Tag // that have waiters, by their turnstiles

	silence *silence
}

// ask asks the processes, if enough time has passed.
func (m *Monitor) ask(ctx context.Context) {
	wait := askEvery
	if m.heard.problem != "" {
		wait = askAgain
	}
	if m.config.NoQuestions || m.facts.Standby || !m.heard.at.IsZero() && time.Since(m.heard.at) < wait {
		return
	}
	var answers introspect.Answers
	var err error
	asked := time.Now()
	if len(m.listeners) > 0 {
		answers, err = introspect.Ask(ctx, m.conn, introspect.Question{Limit: introspect.MaxLimit, Timeout: m.askTimeout()})
	}
	h := heard{at: time.Now(), answers: answers}
	switch {
	case err != nil:
		m.config.Logger.Info("processes_cannot_be_asked", slog.Any("error", err))
		h.problem = "the processes could not be asked"
		h.answers = introspect.Answers{}
	case m.pooled && len(answers.Answers) == 0 && len(answers.Silent) > 0:
		h.problem = "this monitor reaches PostgreSQL through a pooler, and hears no answers"
		h.answers = introspect.Answers{}
	}
	m.heard = h
	m.remember()
	m.heard.index(m.memos)
	names := make(map[uint32]string, len(m.listeners))
	for _, l := range m.listeners {
		names[l.Session] = incident.ListenerName(l.ApplicationName)
	}
	m.heard.silence = newSilence(asked, h.answers, names, m.memos)
}

// askTimeout returns how long to wait for silent processes: longer, once, if one of them was silent for the first time.
func (m *Monitor) askTimeout() time.Duration {
	for _, n := range m.unanswered {
		if n == 1 {
			return askLonger
		}
	}
	return askTimeout
}

// index indexes the answers by key and session. Silent processes count with their last answer.
func (h *heard) index(last map[uint32]memo) {
	h.texts, h.keys = map[namespace.Tag]string{}, map[namespace.Tag]namespace.Tag{}
	h.holds, h.waits = map[spot]time.Time{}, map[spot]time.Time{}
	name := func(t namespace.Tag, text string) {
		if old, ok := h.texts[t]; !ok || incident.Hidden(old) {
			h.texts[t] = text
		}
	}
	for _, m := range last {
		for j := range m.answer.Locks {
			l := &m.answer.Locks[j]
			name(l.Tag, l.Key)
			h.holds[spot{l.Session, l.Tag}] = earlier(h.holds[spot{l.Session, l.Tag}], m.at.Add(-l.Age))
		}
		for j := range m.answer.Waits {
			w := &m.answer.Waits[j]
			name(w.Tag, w.Key)
			h.keys[turnstile.Of(w.Tag)] = w.Tag
			if w.Session != 0 {
				h.waits[spot{w.Session, w.Tag}] = earlier(h.waits[spot{w.Session, w.Tag}], m.at.Add(-w.Age))
			}
		}
	}
}

// earlier returns the earlier of two times; a zero a is ignored.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// A memo is a process's last answer.
type memo struct {
	answer introspect.Answer
	at     time.Time
}

// remember keeps the last answer of each listening process, for the time when it is silent.
func (m *Monitor) remember() {
	memos := make(map[uint32]memo, len(m.heard.answers.Answers))
	unanswered := make(map[uint32]int, len(m.heard.answers.Silent))
	for _, s := range m.heard.answers.Silent {
		unanswered[s.Session] = m.unanswered[s.Session] + 1
		if old, ok := m.memos[s.Session]; ok {
			memos[s.Session] = old
		}
	}
	for _, a := range m.heard.answers.Answers {
		memos[a.Session] = memo{a, m.heard.at}
	}
	if m.heard.problem == "" {
		m.memos, m.unanswered = memos, unanswered
	}
}

// input returns the input of a Picture. skew is how far the server's clock is ahead of the local one.
func (m *Monitor) input(s *Snapshot, skew time.Duration) incident.Input {
	in := incident.Input{
		At: s.Server.Now, Rows: make([]incident.Row, len(s.Locks)), Names: map[uint32]string{}, Namespaces: map[int]string{},
		Answers: m.heard.answers.Answers, Asked: m.heard.at.Add(skew), Text: m.assembler.show, ID: m.linkID,
		HideLabels: m.config.Redact != nil, Server: m.facts.Server, Mailboxes: m.mailboxes.all,
	}
	if m.heard.at.IsZero() {
		in.Asked = s.Server.Now
	}
	in.Server.Version, in.Server.Database, in.Server.Partial, in.Server.Clock = s.Server.Version, s.Server.Database, s.Partial, skew
	in.Server.Unanswered, in.Server.Commits = m.heard.problem, m.commits
	if m.config.NoQuestions {
		in.Server.Unanswered = "this monitor does not ask processes"
	}
	for n := range m.config.Namespaces.All() {
		in.Namespaces[n.Number()] = n.Name()
	}
	for _, q := range m.heard.answers.Silent {
		silent := incident.Silent{Silent: q, Unanswered: m.unanswered[q.Session]}
		if old, ok := m.memos[q.Session]; ok {
			silent.Last, silent.Spoke = &old.answer, old.at.Add(skew)
		}
		in.Silent = append(in.Silent, silent)
	}
	for _, l := range m.listeners {
		in.Names[l.Session] = l.ApplicationName
	}
	for i := range s.Locks {
		in.Rows[i] = m.incidentRow(&s.Locks[i], s.Server.Now)
	}
	return in
}

func (m *Monitor) incidentRow(l *Lock, now time.Time) incident.Row {
	r := incident.Row{
		Session: incident.Session{PID: l.PID, Name: l.ApplicationName}, Tag: l.Tag, Text: l.Key.Text, Shown: l.shown,
		Shared: l.Mode != exclusive, Granted: l.Granted, SilentBy: l.silentBy, Age: time.Duration(l.Duration * float64(time.Second)),
	}
	if l.Namespace != nil {
		r.Namespace = *l.Namespace
	}
	if l.State != nil {
		r.State = *l.State
	}
	if l.stateChange != nil {
		r.StateAge = now.Sub(*l.stateChange)
	}
	return r
}

// show returns the displayed form of a key that a process calls text: redacted, and under its name in
// Config.Namespaces.
func (a *assembler) show(tag namespace.Tag, text string) (shown string, whole bool) {
	l := Lock{Tag: tag}
	if text == "" || incident.Hidden(text) {
		text = cmp.Or(a.heard.texts[tag], text)
	}
	a.nameAs(&l, text)
	return l.Key.Text, l.shown
}
