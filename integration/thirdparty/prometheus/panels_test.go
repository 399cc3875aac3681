package prometheus

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
