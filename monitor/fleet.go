package monitor

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

// How often the tables are read, and how long the first picture waits for them.
const (
	fleetEvery = 5 * time.Second
	fleetFirst = 2 * time.Second
)

// mostShown is how many characters of a text of others are shown.
const mostShown = 160

// notRead is the problem of a Fleet after which the tables could not be read.
const notRead = "the tables of shards, ticks, turns and leases did not answer, and this is what they had before"

// A fleetState is the newest Fleet, read in the background.
type fleetState struct {
	mu      sync.Mutex
	newest  *fleet.Fleet   // nil = none was read yet
	old     *fleet.Fleet   // the newest with the problem that it was not read again; nil = it was
	spaces  *namespace.Set // of its groups and mailboxes
	read    time.Time      // the last read, by the local clock
	reading bool
	failing bool
	first   chan struct{} // closed after the first read; nil before it
}

// fleetNow returns the newest Fleet and has it read again, if that is due. Only the first picture waits for it.
func (m *Monitor) fleetNow() (*fleet.Fleet, *namespace.Set) {
	if m.config.Fleet == nil {
		return nil, nil
	}
	s := &m.fleet
	s.mu.Lock()
	if s.first == nil {
		s.first = make(chan struct{})
	}
	begun := s.newest != nil || !s.read.IsZero()
	if !s.reading && time.Since(s.read) >= fleetEvery {
		s.reading = true
		m.work.Go(m.readFleet)
	}
	s.mu.Unlock()
	if !begun {
		select {
		case <-s.first:
		case <-time.After(fleetFirst):
		case <-m.lifetime.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.old, s.newest), s.spaces
}

// readFleet reads the tables once.
func (m *Monitor) readFleet() {
	ctx, cancel := context.WithTimeout(m.lifetime, flightTimeout)
	defer cancel()
	f, err := m.config.Fleet(ctx)
	s := &m.fleet
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !s.failing && m.lifetime.Err() == nil {
		m.config.Logger.Info("fleet_not_read", slog.Any("error", err))
	}
	s.reading, s.failing = false, err != nil
	switch {
	case err == nil:
		s.spaces = spaces(&f)
		m.legible(&f)
		s.newest, s.old = &f, nil
	case s.newest != nil && s.old == nil:
		s.old = new(*s.newest)
		s.old.Problems = append(slices.Clip(s.old.Problems), notRead)
	}
	if s.read.IsZero() {
		close(s.first)
	}
	s.read = time.Now()
}

// spaces returns the namespaces of groups and mailboxes, without those whose name or number has two meanings.
func spaces(f *fleet.Fleet) *namespace.Set {
	set, _ := namespace.NewSet() // an empty one is valid
	var all []namespace.Namespace
	add := func(definition string) {
		name, number, _ := strings.Cut(definition, "=")
		n, err := strconv.Atoi(number)
		if err != nil {
			return
		}
		space, err := namespace.New(n, name)
		if err != nil || slices.Contains(all, space) {
			return
		}
		if next, err := namespace.NewSet(append(slices.Clone(all), space)...); err == nil {
			set, all = next, append(all, space)
		}
	}
	for i := range f.Groups {
		add(f.Groups[i].Name)
	}
	for i := range f.Mailboxes {
		add(f.Mailboxes[i].Namespace)
	}
	return set
}

// legible makes the texts of a Fleet fit to be shown, and redacts ids. Those of Locks are treated with all keys.
func (m *Monitor) legible(f *fleet.Fleet) {
	show := func(texts ...*string) {
		for _, text := range texts {
			*text = legible.Quote(*text, mostShown)
		}
	}
	for i := range f.Groups {
		g := &f.Groups[i]
		name, _, _ := strings.Cut(g.Name, "=")
		for j := range g.Nodes {
			show(&g.Nodes[j].Identity)
		}
		for j := range g.List {
			s := &g.List[j]
			s.Name = m.redacted(name, s.Name)
			show(&s.Name, &s.Owner, &s.Pin)
		}
		show(&g.Name)
	}
	for i := range f.Jobs {
		show(&f.Jobs[i].Name, &f.Jobs[i].Last.Node)
	}
	for i := range f.Mailboxes {
		b := &f.Mailboxes[i]
		name, _, _ := strings.Cut(b.Namespace, "=")
		for j := range b.Turns {
			b.Turns[j].Entity = m.redacted(name, b.Turns[j].Entity)
			show(&b.Turns[j].Entity, &b.Turns[j].Node)
		}
		for j := range b.Nodes {
			show(&b.Nodes[j])
		}
		show(&b.Name, &b.Namespace)
	}
	for i := range f.Leases {
		l := &f.Leases[i]
		l.Name = m.redacted("", l.Name)
		show(&l.Name, &l.Holder)
	}
	for i := range f.Problems {
		show(&f.Problems[i])
	}
}

// redacted returns an id as viewers see it.
func (m *Monitor) redacted(name, id string) string {
	if m.config.Redact == nil {
		return id
	}
	return m.config.Redact(name, id)
}

// oneAtATime keeps the promise about Config.Redact.
func oneAtATime(redact func(namespace, id string) string) func(namespace, id string) string {
	if redact == nil {
		return nil
	}
	var mu sync.Mutex
	return func(namespace, id string) string {
		mu.Lock()
		defer mu.Unlock()
		return redact(namespace, id)
	}
}
