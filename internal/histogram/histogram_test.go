package histogram_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/histogram"
)

func TestQuantilesAreWithinThreePercent(t *testing.T) {
	t.Parallel()
	for _, unit := range []time.Duration{1, 97, time.Microsecond, 13 * time.Millisecond, time.Hour} {
		var h histogram.Histogram
		for i := range 1000 {
			h.Add(time.Duration(i+1) * unit)
		}
		for _, q := range []float64{0.01, 0.5, 0.99, 0.999} {
			assert.InEpsilon(t, (q*1000+1)*float64(unit), float64(h.At(q)), 0.033, "unit %s, quantile %g", unit, q)
		}
		assert.Equal(t, 1000*unit, h.Max())
		assert.Equal(t, uint64(1000), h.Count())
	}
}

func TestAnEmptyHistogramIsZeroEverywhere(t *testing.T) {
	t.Parallel()
	var h histogram.Histogram
	assert.Zero(t, h.At(0.5))
	assert.Zero(t, h.Max())
	h.Add(-1) // the clock was set back
	assert.Zero(t, h.At(0.5))
}

func TestMergedAndSentHistogramsCountTheSame(t *testing.T) {
	t.Parallel()
	var a, b, whole histogram.Histogram
	for i := range 100 {
		d := time.Duration(i) * time.Millisecond
		whole.Add(d)
		if i%2 == 0 {
			a.Add(d)
		} else {
			b.Add(d)
		}
	}
	text, err := json.Marshal(&b)
	require.NoError(t, err)
	var sent histogram.Histogram
	require.NoError(t, json.Unmarshal(text, &sent))
	a.Merge(&sent)
	assert.Equal(t, whole, a)
}
