package frozen

import (
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

var description = regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: (\{[^}]*\})`)

// Metrics returns the names and labels of what a collector describes.
func Metrics(tb testing.TB, c prometheus.Collector) (facts []string) {
	tb.Helper()
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		c.Describe(all)
	}()
	for d := range all {
		m := description.FindStringSubmatch(d.String())
		require.NotNil(tb, m, d.String())
		facts = append(facts, m[1]+m[2])
	}
	return facts
}
