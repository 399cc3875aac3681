package advisory_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/locktable"
	"github.com/pglatch/pglatch/internal/test/tabletrace"
)

// A trace from which an event was left out is not accepted: so what the carrier forgets, or does twice, is found. All Lockers of this package's tests
// are watched so.
func TestATraceWithoutOneOfItsEventsIsNotAccepted(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]advisory.Config{"dedicated": {LocksPerConn: 1}, "multiplexed": {LocksPerConn: 100}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var trace *tabletrace.Trace
			synctest.Test(t, func(t *testing.T) { trace = traceOfALocker(t, config) })
			require.NoError(t, trace.Replay())
			// These are times, of which the table makes use later, if at all.
			times := []locktable.EventKind{locktable.EventCapacity, locktable.EventDialFrom, locktable.EventVerified, locktable.EventRested}
			left := 0
			for i, r := range trace.Records() {
				// A wait that looks once more, or less, is a right one too.
				look := r.Kind == locktable.EventNext || r.Kind == locktable.EventStepped && !r.Replies[0].Held
				if slices.Contains(times, r.Kind) || look || r.Kind == locktable.EventCommands && r.Nothing() {
					continue
				}
				left++
				assert.Error(t, trace.Replay(i), "without %d, %v", i, r)
			}
			assert.Greater(t, left, 40, "the control: they were left out")
		})
	}
}

// traceOfALocker is that of one that has locks handed over, waits for another process, takes several locks and a slot, and loses a session.
func traceOfALocker(t *testing.T, config advisory.Config) *tabletrace.Trace {
	t.Helper()
	server := advisorytest.NewServer()
	other, err := server.Open(advisory.Config{})
	require.NoError(t, err)
	l, err := server.Open(config)
	require.NoError(t, err)
	trace := l.Trace()

	first, err := other.Acquire(t.Context(), entity(1))
	require.NoError(t, err)
	for range 3 {
		go func() {
			lock, err := l.Acquire(t.Context(), entity(1))
			if assert.NoError(t, err) {
				time.Sleep(time.Millisecond)
				assert.NoError(t, lock.Release())
			}
		}()
	}
	time.Sleep(time.Second)
	require.NoError(t, first.Release())
	time.Sleep(time.Second)
	both, err := l.AcquireAll(t.Context(), entity(2), entity(3))
	require.NoError(t, err)
	slot, err := l.AcquireSlot(t.Context(), entity(4), 2)
	require.NoError(t, err)
	server.KillSessions()
	time.Sleep(time.Second)
	<-both.Lost()
	<-slot.Lost()
	l.Close()
	other.Close()
	return trace
}
