package workload_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/exclusion"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/workload"
)

// local is a system of mutexes, without a server.
type local struct {
	system.Client

	locks sync.Map
	err   error
	off   bool // no lock at all
}

func (l *local) Cycle(_ context.Context, _ int, key uint32, held func()) error {
	if l.off {
		held()
		return nil
	}
	m, _ := l.locks.LoadOrStore(key, new(sync.Mutex))
	mu, _ := m.(*sync.Mutex)
	mu.Lock()
	defer mu.Unlock()
	held()
	return l.err
}

func table(t *testing.T) *exclusion.Table {
	t.Helper()
	path := filepath.Join(t.TempDir(), "table")
	require.NoError(t, exclusion.Create(path))
	opened, err := exclusion.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, opened.Close()) })
	return opened
}

func TestALoadCountsItsCyclesAndMeasuresEach(t *testing.T) {
	t.Parallel()
	for _, keys := range []workload.Keys{workload.Random, workload.Hot, workload.Own, workload.Zipf} {
		load := workload.Load{Keys: keys, Workers: 8, Duration: 50 * time.Millisecond, Waits: keys == workload.Zipf, Work: keys == workload.Zipf}
		s, err := load.Run(t.Context(), new(local), table(t))
		require.NoError(t, err, keys)
		assert.Positive(t, s.OpsPerSecond, keys)
		assert.InDelta(t, float64(s.Latencies.Count()), s.OpsPerSecond*load.Duration.Seconds(), 8, "%s: but for those across the end", keys)
	}
}

func TestALoadWithoutLocksIsFound(t *testing.T) {
	t.Parallel()
	load := workload.Load{Keys: workload.Zipf, Workers: 64, Duration: 10 * time.Second, Work: true}
	_, err := load.Run(t.Context(), &local{off: true}, table(t))
	require.ErrorIs(t, err, exclusion.ErrTwoHolders)
}

func TestAnErrorEndsTheLoad(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	load := workload.Load{Keys: workload.Hot, Workers: 4, Duration: time.Minute}
	_, err := load.Run(t.Context(), &local{err: broken}, table(t))
	require.ErrorIs(t, err, broken)
}
