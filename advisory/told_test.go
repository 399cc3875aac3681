//go:build unix

package advisory_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session/memory"
)

// processor is the time that this process had of the processors.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The documentation of LocksPerConn names 2 µs. This is not parallel, so that the time is its own. A busy machine only adds to
// it: the least of some losses counts.
func TestWhatTheLossOfManyLocksCosts(t *testing.T) { //nolint:paralleltest // see above
	const most = 40 * time.Microsecond
	for name, ended := range map[string]func(*advisory.Lock) <-chan struct{}{
		"Lost":    (*advisory.Lock).Lost,
		"Context": func(l *advisory.Lock) <-chan struct{} { return l.Context().Done() },
	} {
		cost := costOfLoss(t, ended)
		for tries := 1; cost >= most && tries < 5; tries++ {
			cost = min(cost, costOfLoss(t, ended))
		}
		t.Logf("%s: %v for each lock", name, cost)
		assert.Less(t, cost, most, name)
	}
}

// costOfLoss is the processor time for each lock when a connection of many locks is lost.
func costOfLoss(t *testing.T, ended func(*advisory.Lock) <-chan struct{}) time.Duration {
	t.Helper()
	const locks = 10_000
	server := memory.NewServer()
	l, err := openOn(server, advisory.Config{LocksPerConn: locks, MaxLocks: locks})
	require.NoError(t, err)
	defer l.Close()
	var holders, ready sync.WaitGroup
	for i := range int64(locks) {
		lock, err := l.Acquire(context.Background(), entity(i))
		require.NoError(t, err)
		lost := ended(lock)
		ready.Add(1)
		holders.Go(func() {
			ready.Done()
			<-lost
		})
	}
	ready.Wait()
	eventually(t, func() bool { return l.Stats().Sessions == 1 && l.Stats().SessionsInUse == 1 })
	before := processor(t)
	server.KillSessions()
	holders.Wait()
	return (processor(t) - before) / locks
}
