package prometheus

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	observe "github.com/pglatch/pglatch/observe/prometheus"
)

const patience = await.Patience

// A judge evaluates alert rules over a storage.
type judge struct {
	*testing.T
	groups map[string]*rules.Group
	fired  map[string]bool // alerts that were firing in any evaluation
}

// newJudge reads the rules. All of them wait for the given time; "" = each for its own.
func newJudge(t *testing.T, storage storage.Storage, wait string) *judge {
	t.Helper()
	text := observe.Rules()
	if wait != "" {
		text = replaceFor(text, wait)
	}
	file := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: patience, Logger: promslog.NewNopLogger()})
	t.Cleanup(func() { assert.NoError(t, engine.Close()) })
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(engine, storage), Appendable: storage, Queryable: storage, Context: t.Context(),
		Logger: promslog.NewNopLogger(), NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Parser: parser.NewParser(parser.Options{}),
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	require.Empty(t, errs)
	return &judge{T: t, groups: groups, fired: make(map[string]bool)}
}

func replaceFor(text, wait string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if before, _, ok := strings.Cut(line, "for: "); ok && strings.TrimSpace(before) == "" {
			line = before + "for: " + wait + "\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// look evaluates all rules at a time, and returns the states of the alerts that are not inactive.
func (j *judge) look(at time.Time) (alerts map[string]rules.AlertState) {
	j.Helper()
	alerts = make(map[string]rules.AlertState)
	for _, g := range j.groups {
		g.Eval(j.Context(), at)
		for _, r := range g.AlertingRules() {
			require.NoError(j, r.LastError(), r.Name())
			if state := r.State(); state != rules.StateInactive {
				alerts[r.Name()] = state
			}
			if r.State() == rules.StateFiring {
				j.fired[r.Name()] = true
			}
		}
	}
	return alerts
}

// until looks until an alert is in a state.
func (j *judge) until(alert string, state rules.AlertState) {
	j.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(patience)
	for now := range tick.C {
		alerts := j.look(now)
		if s, ok := alerts[alert]; s == state && ok || !ok && state == rules.StateInactive {
			return
		}
		require.True(j, now.Before(end), "%s is not %v: %v", alert, state, alerts)
	}
}

// never says that none of the alerts was firing in any evaluation.
func (j *judge) never(alerts ...string) {
	j.Helper()
	for _, a := range alerts {
		assert.False(j, j.fired[a], a)
	}
}

// A node is a process as Prometheus sees it.
type node struct {
	metrics *observe.Metrics
	address string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n, registry := &node{metrics: observe.New()}, prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(n.metrics))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	n.address = strings.TrimPrefix(server.URL, "http://")
	return n
}

// scraping returns the storage of a Prometheus that scrapes nodes four times a second.
func scraping(t *testing.T, nodes ...*node) storage.Storage {
	t.Helper()
	db, err := teststorage.NewWithError()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	manager, err := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: model.Duration(10 * time.Millisecond)},
		promslog.NewNopLogger(), nil, db, nil, prometheus.NewRegistry())
	require.NoError(t, err)
	cfg, err := config.Load(`{global: {scrape_interval: 250ms, scrape_timeout: 250ms}, scrape_configs: [{job_name: pglatch}]}`, promslog.NewNopLogger())
	require.NoError(t, err)
	require.NoError(t, manager.ApplyConfig(cfg))
	targets := &targetgroup.Group{}
	for _, n := range nodes {
		targets.Targets = append(targets.Targets, model.LabelSet{model.AddressLabel: model.LabelValue(n.address)})
	}
	discovered := make(chan map[string][]*targetgroup.Group, 1)
	discovered <- map[string][]*targetgroup.Group{"pglatch": {targets}}
	var running sync.WaitGroup
	running.Go(func() { _ = manager.Run(discovered) })
	t.Cleanup(func() {
		manager.Stop()
		running.Wait()
	})
	return db
}

// sees waits until the sum of a metric is as it should be.
func sees(t *testing.T, db storage.Storage, metric string, want float64, series int) {
	t.Helper()
	await.Until(t, patience, func() bool {
		sum, n := latest(t, db, metric)
		return sum == want && n == series
	}, "%s of %v", metric, want)
}

// latest returns the sum of the last samples of a metric, and of how many series.
func latest(t *testing.T, db storage.Storage, metric string) (sum float64, n int) {
	t.Helper()
	now := time.Now()
	q, err := db.Querier(now.Add(-5*time.Second).UnixMilli(), now.UnixMilli())
	require.NoError(t, err)
	defer q.Close()
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, metric))
	for set.Next() {
		last := 0.0
		for it := set.At().Iterator(nil); it.Next() != chunkenc.ValNone; {
			_, last = it.At()
		}
		sum += last
		n++
	}
	require.NoError(t, set.Err())
	return sum, n
}

func TestMain(m *testing.M) { pgtest.Main(m) }
