package prometheus_test

import (
	"testing"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lockmetrics "github.com/pglatch/pglatch/observe/prometheus"
	"github.com/pglatch/pglatch/turns"
)

func TestDatabasesOfOneProcessAreToldApartByALabel(t *testing.T) {
	t.Parallel()
	registry := prom.NewPedanticRegistry()
	shop, audit := lockmetrics.New(), lockmetrics.New()
	require.NoError(t, registry.Register(shop.Elections()))
	for database, metrics := range map[string]*lockmetrics.Metrics{"db-1:5432/shop": shop, "db-2:5432/audit": audit} {
		wrapped := prom.WrapRegistererWith(prom.Labels{"database": database}, registry)
		require.NoError(t, wrapped.Register(metrics.ExceptElections()))
		metrics.Turns("chat").Ended(turns.TurnData{Committed: true})
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	databases := map[string]bool{}
	for _, f := range families {
		if f.GetName() != "pglatch_turns_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "database" {
					databases[l.GetValue()] = true
				}
			}
		}
	}
	assert.Equal(t, map[string]bool{"db-1:5432/shop": true, "db-2:5432/audit": true}, databases)

	whole := lockmetrics.New()
	require.Error(t, prom.WrapRegistererWith(prom.Labels{"database": "x"}, prom.NewRegistry()).Register(whole), "control: elections have the label already")
	parts := testutil.CollectAndCount(whole.Elections()) + testutil.CollectAndCount(whole.ExceptElections())
	assert.Equal(t, testutil.CollectAndCount(whole), parts, "the two parts are the whole")
}
