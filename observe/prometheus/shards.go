package prometheus

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pglatch/pglatch/leader/shards"
)

// A spread holds the nodes that own shards, by the names of their groups.
type spread struct {
	mu    sync.Mutex
	open  []*shards.Node
	ended map[string]shards.Stats // the counters of nodes that are no longer watched
}

// A shardMetric is a field of Stats.
type shardMetric struct {
	number
	value func(shards.Stats) float64
}

var shardTransitions = number{
	prometheus.NewDesc("pglatch_shard_transitions_total", "Shards that this node acquired, released or lost.", []string{"name", "to"}, nil), prometheus.CounterValue,
}

var shardMetrics = []shardMetric{
	{gauge("pglatch_shards_owned", "Shards that this process owns.", "name"), func(s shards.Stats) float64 { return float64(s.Owned) }},
	{gauge("pglatch_shard_sessions", "Open sessions that carry this process' shards.", "name"), func(s shards.Stats) float64 { return float64(s.Sessions) }},
	{gauge("pglatch_shard_members", "Nodes of the group at the last look, including this one.", "name"), func(s shards.Stats) float64 { return float64(s.Members) }},
	shardCounter("moves_total", "Shards that this node gave up for balance.", func(s shards.Stats) int64 { return s.Moved }),
	shardCounter("refusals_total", "Claims of shards that another node owned.", func(s shards.Stats) int64 { return s.Refused }),
	shardCounter("work_failures_total", "Work that returned an error or panicked.", func(s shards.Stats) int64 { return s.Failures }),
	shardCounter("given_away_total", "Shards that this node gave up because their work failed too often.", func(s shards.Stats) int64 { return s.GaveAway }),
	shardCounter("looks_total", "Looks at members and owners.", func(s shards.Stats) int64 { return s.Looks }),
	shardCounter("backend_errors_total", "Calls of the backend that failed.", func(s shards.Stats) int64 { return s.Errors }),
}

func shardCounter(name, help string, value func(shards.Stats) int64) shardMetric {
	desc := prometheus.NewDesc("pglatch_shard_"+name, help, []string{"name"}, nil)
	return shardMetric{number{desc, prometheus.CounterValue}, func(s shards.Stats) float64 { return float64(value(s)) }}
}

func (s *spread) describe(to chan<- *prometheus.Desc) {
	to <- shardTransitions.desc
	for _, m := range shardMetrics {
		to <- m.desc
	}
}

// WatchShards exports the Stats of a Node, until stop is called. Afterwards the counters remain and the
// gauges are 0.
func (m *Metrics) WatchShards(node *shards.Node) (stop func()) {
	s := m.spread
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, node)
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = slices.DeleteFunc(s.open, func(each *shards.Node) bool { return each == node })
		last := node.Stats()
		last.Owned, last.Sessions, last.Members = 0, 0, 0
		s.ended[node.Name()] = plus(s.ended[node.Name()], last)
	})
}

func (s *spread) collect(to chan<- prometheus.Metric) {
	for name, stats := range s.stats() {
		for _, m := range shardMetrics {
			m.send(to, m.value(stats), name)
		}
		shardTransitions.send(to, float64(stats.Acquired), name, "acquired")
		shardTransitions.send(to, float64(stats.Released), name, toReleased)
		shardTransitions.send(to, float64(stats.Lost), name, toLost)
	}
}

func (s *spread) stats() map[string]shards.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]shards.Stats)
	maps.Copy(all, s.ended)
	for _, node := range s.open {
		all[node.Name()] = plus(all[node.Name()], node.Stats())
	}
	return all
}

// plus returns the sum for two nodes of a process.
func plus(a, b shards.Stats) shards.Stats {
	return shards.Stats{
		Owned: a.Owned + b.Owned, Sessions: a.Sessions + b.Sessions, Members: max(a.Members, b.Members),
		Acquired: a.Acquired + b.Acquired, Refused: a.Refused + b.Refused, Moved: a.Moved + b.Moved,
		Released: a.Released + b.Released, Lost: a.Lost + b.Lost, Failures: a.Failures + b.Failures,
		GaveAway: a.GaveAway + b.GaveAway, Looks: a.Looks + b.Looks, Errors: a.Errors + b.Errors,
	}
}
