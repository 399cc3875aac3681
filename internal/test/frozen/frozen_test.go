package frozen

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
)

func TestWhatIsGoneAndWhatIsNewIsFound(t *testing.T) {
	t.Parallel()
	gone, added := compare([]string{"a", "b"}, []string{"b", "c", "c"})
	assert.Equal(t, []string{"a"}, gone)
	assert.Equal(t, []string{"c"}, added)
}

func TestATypeIsAsItsJSON(t *testing.T) {
	t.Parallel()
	type inner struct {
		At   time.Time `json:"at"`
		Key  []byte    `json:"key,omitempty"`
		Next *inner    `json:"next"`
	}
	type Embedded struct{ Plain int }
	type outer struct {
		Embedded
		Map  map[string]string `json:"map"`
		All  []inner           `json:"all"`
		None string            `json:"-"`
	}
	assert.ElementsMatch(t, []string{
		"x.Plain: number", "x.map.x: string", "x.all[].at: string", "x.all[].key: string",
		"x.all[].next.at: string", "x.all[].next.key: string", "x.all[].next.next: null",
	}, JSON[outer](t, "x"))
}

func TestConstantsAreThoseOfTheSource(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{`variable = "PGLATCH_FREEZE"`}, Constants(t, ".", "vari.*"))
}

func TestAMetricIsItsNameAndItsLabels(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"x_total{a,b}", "y{}"}, append(
		Metrics(t, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x_total"}, []string{"a", "b"})),
		Metrics(t, prometheus.NewGauge(prometheus.GaugeOpts{Name: "y"}))...))
}
