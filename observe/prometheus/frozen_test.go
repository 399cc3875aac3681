package prometheus_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/observe/prometheus"
)

func TestTheNamesOfMetricsAreFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "metrics", frozen.Metrics(t, prometheus.New()))
}
