package gauge_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
)

func TestTheMedianLeavesTheValuesAlone(t *testing.T) {
	t.Parallel()
	values := []int{3, 1, 2}
	assert.Equal(t, 2, gauge.Median(values))
	assert.Equal(t, []int{3, 1, 2}, values)
	assert.Zero(t, gauge.Median[int](nil))
}
