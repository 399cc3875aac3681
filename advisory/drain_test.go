package advisory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/session"
)

// At 500 ms with a LossDrain of 200 ms a ping had 83 ms, and on busy processors every lock was lost.
func TestALossDrainLeavesAPingTimeToBeAnswered(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, row := range []struct {
		ttl, drain time.Duration
		good       bool
	}{
		{500 * ms, 0, true},
		{500 * ms, 33 * ms, true},
		{500 * ms, 34 * ms, false},
		{500 * ms, 200 * ms, false},
		{time.Second, 316 * ms, true},
		{time.Second, 400 * ms, false},
		{1500 * ms, 600 * ms, true},
		{1500 * ms, 600*ms + 1, false},
		{0, 6 * time.Second, true}, // 15 s
		{0, 6*time.Second + 1, false},
		{24 * time.Hour, 24 * time.Hour * 2 / 5, true},
		{time.Second, -1, false},
	} {
		locker, err := advisorytest.NewServer().Open(advisory.Config{SessionTTL: row.ttl, LossDrain: row.drain})
		if row.good {
			require.NoError(t, err, row)
			locker.Close()
			continue
		}
		var config *advisory.ConfigError
		require.ErrorAs(t, err, &config, row)
		assert.Equal(t, "LossDrain", config.Field)
		assert.Contains(t, config.Remedy, "longer SessionTTL")
	}
	for ttl := session.MinTTL; ttl <= time.Minute; ttl += 7 * ms {
		most := session.MaxLossDrain(ttl)
		assert.GreaterOrEqual(t, ttl-ttl/10-ttl/3-most, session.PingTime-1, ttl)
		assert.LessOrEqual(t, most, ttl*2/5)
		assert.Positive(t, most)
	}
}
