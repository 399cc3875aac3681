package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestQuantilesAreWithinTwoPercent(t *testing.T) {
	t.Parallel()
	for _, unit := range []time.Duration{1, time.Microsecond, time.Millisecond, time.Hour} {
		var a histogram
		for i := range 1000 {
			a.add(time.Duration(i+1) * unit)
		}
		assert.Equal(t, 1000, a.count)
		for _, p := range []float64{0.5, 0.95, 0.99} {
			assert.InEpsilon(t, p*1000*float64(unit), float64(a.quantile(p)), 0.02, "%v of %v", p, unit)
		}
		assert.Equal(t, 1000*unit, a.quantile(1))
	}
	var none histogram
	assert.Zero(t, none.quantile(0.5))
	none.add(-1) // the clock was set back
	assert.Zero(t, none.quantile(0.5))
}
