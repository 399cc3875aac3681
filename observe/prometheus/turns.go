package prometheus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/turns"
)

// mail holds what is known of turns and mailboxes.
type mail struct {
	collectors

	turns    *prometheus.CounterVec
	messages *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	mu    sync.Mutex
	boxes map[string]*boxStats // by mailbox
}

// boxStats are the newest Stats of a mailbox.
type boxStats struct {
	turns.Stats
	watchers int
	up       bool
}

func newMail() *mail {
	m := &mail{
		turns:    counters("pglatch_turns_total", "Turns of this process whose handler was called, by result.", "mailbox", "result"),
		messages: counters("pglatch_turn_messages_total", "Messages that turns of this process committed.", "mailbox"),
		seconds:  histograms("pglatch_turn_seconds", "Time that turns of this process held the mutex.", []float64{.001, .005, .025, .1, .5, 2, 10, 60, 300, 1800}, "mailbox"),
		boxes:    map[string]*boxStats{},
	}
	m.collectors = collectors{m.turns, m.messages, m.seconds}
	return m
}

// A mailMetric is a field of Stats.
type mailMetric struct {
	number
	value func(*boxStats) float64
}

var mailEntities = gauge("pglatch_mailbox_entities", "Entities that have messages or a turn, on all nodes, by state.", "mailbox", "state")

var mailMetrics = []mailMetric{
	{gauge("pglatch_mailbox_dead_letters", "Dead letters of the mailbox.", "mailbox"), func(s *boxStats) float64 { return float64(s.Dead) }},
	{gauge("pglatch_mailbox_nodes", "Nodes that serve the mailbox.", "mailbox"), func(s *boxStats) float64 { return float64(s.Nodes) }},
	{gauge("pglatch_mailbox_oldest_ready_seconds", "How long the next entity has been ready for a turn.", "mailbox"), func(s *boxStats) float64 { return s.OldestReady.Seconds() }},
	{gauge("pglatch_mailbox_up", "1 if the last look at the mailbox succeeded; else its other values are old.", "mailbox"), func(s *boxStats) float64 {
		if s.up {
			return 1
		}
		return 0
	}},
}

func (m *mail) describe(to chan<- *prometheus.Desc) {
	m.collectors.describe(to)
	to <- mailEntities.desc
	for _, metric := range mailMetrics {
		to <- metric.desc
	}
}

func (m *mail) collect(to chan<- prometheus.Metric) {
	m.collectors.collect(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, s := range m.boxes {
		for _, metric := range mailMetrics {
			metric.send(to, metric.value(s), name)
		}
		for state, n := range map[string]int64{"ready": s.Ready, "running": s.Running, "stopped": s.Stopped} {
			mailEntities.send(to, float64(n), name, state)
		}
	}
}

// Turns returns an Observer for the Config of a mailbox, which counts its turns in this process.
func (m *Metrics) Turns(mailbox string) turns.Observer {
	for _, result := range []string{"committed", "failed", "stale"} { // so that the first one is an increase
		m.mail.turns.WithLabelValues(mailbox, result)
	}
	return turns.Observer{Ended: func(data turns.TurnData) {
		result := "failed"
		switch {
		case data.Committed:
			result = "committed"
			m.mail.messages.WithLabelValues(mailbox).Add(float64(data.Messages))
		case errors.Is(data.Err, turns.ErrStale):
			result = "stale"
		}
		m.mail.turns.WithLabelValues(mailbox, result).Inc()
		m.mail.seconds.WithLabelValues(mailbox).Observe(data.Took.Seconds())
	}}
}

// DefaultMailboxInterval is the time between two looks at a mailbox, if no other is given.
const DefaultMailboxInterval = 15 * time.Second

// statsTimeout bounds one look.
const statsTimeout = 10 * time.Second

// A Mailbox is a *turns.Mailbox.
type Mailbox interface {
	Name() string
	Stats(ctx context.Context) (turns.Stats, error)
}

var _ Mailbox = (*turns.Mailbox)(nil)

// WatchMailbox asks for the Stats of a mailbox at once and then at intervals (0 = DefaultMailboxInterval), and exports
// them, until stop is called. The Stats cover all nodes, so one process for each mailbox is enough. stop waits for a
// look that is under way.
func (m *Metrics) WatchMailbox(box Mailbox, every time.Duration) (stop func()) {
	if every <= 0 {
		every = DefaultMailboxInterval
	}
	name := box.Name()
	m.mail.watch(name, 1)
	end := background.Run(context.Background(), func(ctx context.Context) {
		for ctx.Err() == nil {
			m.mail.look(ctx, box)
			_ = pause.For(ctx, every)
		}
	})
	return sync.OnceFunc(func() {
		end()
		m.mail.watch(name, -1)
	})
}

// watch counts the watchers of a mailbox. A mailbox without watchers is not exported.
func (m *mail) watch(name string, more int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.boxes[name]
	if s == nil {
		s = &boxStats{}
		m.boxes[name] = s
	}
	if s.watchers += more; s.watchers == 0 {
		delete(m.boxes, name)
	}
}

func (m *mail) look(ctx context.Context, box Mailbox) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	stats, err := box.Stats(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.boxes[box.Name()]
	if s.up = err == nil; s.up {
		s.Stats = stats
	}
}
