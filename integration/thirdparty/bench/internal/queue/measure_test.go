package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/queue"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEachSystemDoesTheWork(t *testing.T) {
	t.Parallel()
	admin := pgtest.DSN(t)
	for i, s := range queue.Systems {
		load := queue.Load{Entities: 2, Depth: 20 * (i % 2), Duration: 50 * time.Millisecond, Workers: 3}
		var r queue.Result
		for end := time.Now().Add(time.Minute); r.Handled == 0 && time.Now().Before(end); load.Duration *= 4 {
			var err error
			r, err = queue.Measure(t.Context(), admin, s, load)
			require.NoError(t, err)
		}
		assert.Positive(t, r.Handled, s.Name)
		assert.Zero(t, r.Twice, s.Name)
		if s.Ordered {
			assert.Zero(t, r.Disorder, s.Name)
		}
	}
}
