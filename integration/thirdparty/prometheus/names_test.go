package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/namespace"
	observe "github.com/pglatch/pglatch/observe/prometheus"
	"github.com/pglatch/pglatch/turns"
)

// A mailbox has no messages.
type mailbox struct{}

func (mailbox) Name() string                               { return "chat" }
func (mailbox) Stats(context.Context) (turns.Stats, error) { return turns.Stats{}, nil }

// exported returns the labels of everything that is exported, by the names of samples.
func exported(t *testing.T) map[string]map[string]bool {
	t.Helper()
	registry, metrics := prometheus.NewRegistry(), observe.New()
	require.NoError(t, registry.Register(metrics.Elections()))
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"database": "db-1:5432/shop"}, registry) // as with several databases
	require.NoError(t, labelled.Register(metrics.ExceptElections()))
	locker, err := advisorytest.NewServer().Open(advisory.Config{Tracer: metrics.Tracer()})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	require.NoError(t, locker.Do(t.Context(), namespace.Must(2, "order").ID(1), func(context.Context) error { return nil }))
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	require.NoError(t, err)
	t.Cleanup(metrics.Watch(elector))
	_, err = metrics.Store(leasetest.NewStore()).Acquire(t.Context(), lease.AcquireRequest{})
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Registry: registry})
	require.NoError(t, err)

	metrics.Turns("chat").Ended(turns.TurnData{Committed: true})
	t.Cleanup(metrics.WatchMailbox(mailbox{}, time.Hour))

	group, err := shards.New(shards.Config{Name: "tenants", Backend: shardstest.NewStore().Backend(), Count: 1})
	require.NoError(t, err)
	t.Cleanup(metrics.WatchShards(group))

	families, err := registry.Gather()
	require.NoError(t, err)
	all := make(map[string]map[string]bool)
	for name, labels := range map[string][]string{ // of a monitor's page
		"pglatch_monitor_up": {"database"}, "pglatch_tables_unread": {"database"}, "pglatch_verdict": {"database", "name", "severity"}, "pglatch_shards_free": {"database", "group"},
		"pglatch_ticks_missed": {"database", "job_name"}, "pglatch_leases": {"database", "state"}, "pglatch_lock_server_up": {"server"}, "pglatch_lock_server_leases": {"server", "state"}, "pglatch_lock_server_waiters": {"server"},
	} {
		all[name] = map[string]bool{"instance": true, "job": true, "pod": true}
		for _, label := range labels {
			all[name][label] = true
		}
	}
	for _, f := range families {
		of := map[string]bool{"instance": true, "job": true, "pod": true}
		for _, l := range f.GetMetric()[0].GetLabel() {
			of[l.GetName()] = true
		}
		all[f.GetName()] = of
		if f.GetType() == dto.MetricType_HISTOGRAM {
			of["le"] = true
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				all[f.GetName()+suffix] = of
			}
		}
	}
	return all
}

// check finds every metric of an expression, and its labels, in what is exported.
func check(t *testing.T, all map[string]map[string]bool, text string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	require.NoError(t, err, text)
	of := make(map[string]bool) // the labels of all metrics of the expression
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		assert.Contains(t, all, v.Name, text)
		for label := range all[v.Name] {
			of[label] = true
		}
		for _, m := range v.LabelMatchers {
			assert.True(t, m.Name == model.MetricNameLabel || all[v.Name][m.Name], "%s has no %s: %s", v.Name, m.Name, text)
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, label := range a.Grouping {
				assert.True(t, of[label], "there is no %s: %s", label, text)
			}
		}
		return nil
	})
}

func TestEveryMetricOfTheRulesIsExportedWithItsLabels(t *testing.T) {
	t.Parallel()
	all := exported(t)
	groups, errs := rulefmt.Parse([]byte(observe.Rules()), false, model.UTF8Validation, parser.NewParser(parser.Options{}), promslog.NewNopLogger())
	require.Empty(t, errs)
	used := regexp.MustCompile(`\$labels\.(\w+)`)
	n := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			n++
			check(t, all, r.Expr)
			assert.NotEmpty(t, r.Labels["severity"], r.Alert)
			assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
			assert.NotEmpty(t, r.Annotations["description"], r.Alert)
			for _, label := range used.FindAllStringSubmatch(r.Annotations["summary"], -1) {
				assert.True(t, !strings.Contains(r.Expr, " by (") || strings.Contains(r.Expr, label[1]), "%s: no %s is left", r.Alert, label[1])
			}
		}
	}
	assert.Equal(t, n, strings.Count(observe.Rules(), "- alert:"))
}

// A target is a query of a panel.
type target struct{ Expr, LegendFormat string }

// A dashboard is the part of Grafana's model that the tests need.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		Targets []target
		GridPos struct{ H, W, X, Y int }
	}
	Annotations struct{ List []target }
	Templating  struct{ List []struct{ Definition string } }
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(observe.Dashboard()), &d))
	return d
}

func TestEveryMetricOfTheDashboardIsExportedWithItsLabels(t *testing.T) {
	t.Parallel()
	dashboard := readDashboard(t)
	all, ids, taken := exported(t), make(map[int]bool), make(map[[2]int]string)
	targets := dashboard.Annotations.List
	for _, p := range dashboard.Panels {
		assert.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		at := p.GridPos
		assert.LessOrEqual(t, at.X+at.W, 24, p.Title)
		for y := at.Y; y < at.Y+at.H; y++ {
			for x := at.X; x < at.X+at.W; x++ {
				assert.Empty(t, taken[[2]int{x, y}], p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		targets = append(targets, p.Targets...)
	}
	require.Greater(t, len(targets), 20)
	for _, target := range targets {
		check(t, all, strings.NewReplacer("$__rate_interval", "5m").Replace(target.Expr))
	}
	values := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
	for _, v := range dashboard.Templating.List {
		if v.Definition == "" {
			continue // the data source
		}
		of := values.FindStringSubmatch(v.Definition)
		require.Len(t, of, 3, v.Definition)
		assert.True(t, all[of[1]][of[2]], v.Definition)
	}
}

// A panel of a metric that does not exist stays empty, without an error.
func TestAMetricOrLabelThatIsNotExportedIsFoundControl(t *testing.T) {
	t.Parallel()
	all := exported(t)
	assert.NotContains(t, all, "pglatch_locks_lost_total")
	assert.NotContains(t, all["pglatch_lock_losses_total"], "entity")
	assert.NotContains(t, all["leader_election_master_status"], "identity")
	assert.NotContains(t, all["pglatch_shards_owned"], "group")
}

// Production has what the other has, and is wrong. Each panel of the monitor must say where.
const twoDatabases = `load 15s
	pglatch_monitor_up{database="prod",instance="1"} 0x80
	pglatch_monitor_up{database="staging",instance="1"} 1x80
	pglatch_verdict{database="prod",name="deadlock",severity="critical",instance="1"} 2x80
	pglatch_verdict{database="staging",name="deadlock",severity="critical",instance="1"} 0x80
	pglatch_shards_free{database="prod",group="tenant=7",instance="1"} 3x80
	pglatch_shards_free{database="staging",group="tenant=7",instance="1"} 0x80
	pglatch_ticks_missed{database="prod",job_name="report",instance="1"} 1x80
	pglatch_ticks_missed{database="staging",job_name="report",instance="1"} 0x80
`

func TestThePanelsOfTheMonitorKeepDatabasesApart(t *testing.T) {
	t.Parallel()
	db := promqltest.LoadedStorage(t, twoDatabases)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: patience, Logger: promslog.NewNopLogger()})
	t.Cleanup(func() { assert.NoError(t, engine.Close()) })
	shown := func(database string) map[string][]string {
		all := map[string][]string{}
		for _, p := range readDashboard(t).Panels {
			for _, target := range p.Targets {
				if !strings.Contains(target.Expr, "$database") {
					continue
				}
				query, err := engine.NewInstantQuery(t.Context(), db, nil, strings.ReplaceAll(target.Expr, "$database", database), time.UnixMilli(0).Add(10*time.Minute))
				require.NoError(t, err)
				samples, err := query.Exec(t.Context()).Vector()
				require.NoError(t, err)
				for _, s := range samples {
					legend := target.LegendFormat
					for name, value := range s.Metric.Map() {
						legend = strings.ReplaceAll(legend, "{{"+name+"}}", value)
					}
					all[p.Title] = append(all[p.Title], fmt.Sprint(legend, " ", s.F))
				}
				slices.Sort(all[p.Title])
				query.Close()
			}
		}
		return all
	}
	assert.Equal(t, map[string][]string{
		"Monitor":                 {"prod 0", "staging 1"},
		"Verdicts":                {"prod critical deadlock 2"},
		"Shards that nobody owns": {"prod tenant=7 3", "staging tenant=7 0"},
		"Ticks that nobody ran":   {"prod report 1", "staging report 0"},
	}, shown(".*"))
	assert.NotContains(t, slices.Collect(maps.Keys(shown("staging"))), "Verdicts", "control: there is none")
}
