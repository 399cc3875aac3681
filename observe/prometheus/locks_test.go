package prometheus_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/lossreason"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/namespace"
	observe "github.com/pglatch/pglatch/observe/prometheus"
)

var orders = namespace.Must(2, "order")

// A scene is Lockers on a server in memory, their metrics and time that stands still.
type scene struct {
	*testing.T
	server   *advisorytest.Server
	metrics  *observe.Metrics
	registry *prometheus.Registry
}

func play(t *testing.T, act func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, server: advisorytest.NewServer(), metrics: observe.New(), registry: prometheus.NewPedanticRegistry()}
		require.NoError(t, s.registry.Register(s.metrics))
		act(s)
	})
}

func (s *scene) open(config advisory.Config) *advisory.Locker {
	s.Helper()
	config.Tracer = s.metrics.Tracer()
	l, err := s.server.Open(config)
	require.NoError(s, err)
	s.Cleanup(l.Close)
	return l
}

func (s *scene) acquire(l *advisory.Locker, key namespace.Key) *advisory.Lock {
	s.Helper()
	lock, err := l.Acquire(s.Context(), key)
	require.NoError(s, err)
	return lock
}

// expect compares the samples of what is named, without their help, type and zeros.
func (s *scene) expect(name string, want ...string) {
	s.Helper()
	assert.ElementsMatch(s, want, samples(s, s.registry, name))
}

// samples are the samples of a metric that are not zero, as text.
func samples(t *scene, from prometheus.Gatherer, name string) []string {
	t.Helper()
	all, err := metricsText(from, name)
	require.NoError(t, err)
	return all
}

func metricsText(from prometheus.Gatherer, name string) (all []string, err error) {
	families, err := from.Gather()
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, f := range families {
		if f.GetName() == name {
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				return nil, err
			}
		}
	}
	for line := range strings.Lines(text.String()) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasSuffix(line, " 0") {
			all = append(all, strings.TrimPrefix(line, name))
		}
	}
	return all, nil
}

func TestRequestsAreCountedByNamespaceAndNeverByEntity(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		l := s.open(advisory.Config{})
		for i := range int64(20) {
			require.NoError(s, s.acquire(l, orders.ID(i)).Release())
		}
		raw := s.acquire(l, namespace.Pair(9, 9))
		_, err := l.TryAcquire(s.Context(), namespace.Pair(9, 9))
		require.ErrorIs(s, err, advisory.ErrHeld)
		_, err = l.TryAcquire(raw.Context(), namespace.Pair(9, 9))
		require.ErrorIs(s, err, advisory.ErrReentrant)
		_, err = l.With(advisory.Options{Wait: time.Second}).Acquire(s.Context(), namespace.Pair(9, 9))
		require.ErrorIs(s, err, advisory.ErrTimeout)
		gone, cancel := context.WithCancel(s.Context())
		cancel()
		_, err = l.Acquire(gone, namespace.Pair(9, 9))
		require.ErrorIs(s, err, context.Canceled)
		require.NoError(s, raw.Release())
		s.expect("pglatch_lock_acquisitions_total",
			`{namespace="order",result="success"} 20`,
			`{namespace="(none)",result="success"} 1`, `{namespace="(none)",result="held"} 1`, `{namespace="(none)",result="reentrant"} 1`,
			`{namespace="(none)",result="timeout"} 1`, `{namespace="(none)",result="canceled"} 1`)
	})
}

func TestWaitsAndHoldsAreMeasured(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		l := s.open(advisory.Config{HandOverBudget: time.Hour})
		first := s.acquire(l, orders.ID(1))
		second := make(chan *advisory.Lock)
		go func() { lock, _ := l.Acquire(context.Background(), orders.ID(1)); second <- lock }()
		bubble.Sleep(3 * time.Second)
		s.expect("pglatch_locks_held", `{namespace="order"} 1`)
		s.expect("pglatch_lock_oldest_hold_seconds", `{namespace="order"} 3`)
		s.expect("pglatch_lock_waiters", `{namespace="order"} 1`)
		s.expect("pglatch_lock_oldest_wait_seconds", `{namespace="order"} 3`)
		require.NoError(s, first.Release())
		require.NoError(s, (<-second).Release())
		s.expect("pglatch_lock_waiters")
		s.expect("pglatch_lock_oldest_wait_seconds")
		s.expect("pglatch_locks_held")
		s.expect("pglatch_lock_handovers_total", `{namespace="order"} 1`)
		assert.Contains(s, samples(s, s.registry, "pglatch_lock_wait_seconds"), `_sum{namespace="order"} 3`)
		assert.Contains(s, samples(s, s.registry, "pglatch_lock_wait_seconds"), `_count{namespace="order"} 2`)
		assert.Contains(s, samples(s, s.registry, "pglatch_lock_hold_seconds"), `_sum{namespace="order"} 3`)
		assert.Contains(s, samples(s, s.registry, "pglatch_lock_hold_seconds"), `_count{namespace="order"} 2`)
	})
}

func TestALossIsCountedOnceByItsReasonAndItsSeriesWasThereBefore(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		l := s.open(advisory.Config{})
		lock := s.acquire(l, orders.ID(1))
		assert.Equal(s, len(lossreason.All()), testutil.CollectAndCount(s.metrics, "pglatch_lock_losses_total"))
		s.server.Kill(lock.PID())
		<-lock.Lost()
		require.ErrorIs(s, lock.Release(), advisory.ErrLost)
		closing := s.acquire(l, orders.ID(2))
		l.Close()
		require.ErrorIs(s, closing.Release(), advisory.ErrLost)
		got := samples(s, s.registry, "pglatch_lock_losses_total")
		assert.Len(s, got, 2)
		assert.Contains(s, got, `{namespace="order",reason="closed"} 1`)
		assert.Contains(s, samples(s, s.registry, "pglatch_lock_hold_seconds"), `_count{namespace="order"} 2`)
	})
}

func TestTheCountersOfAClosedLockerDoNotFall(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		a, b := s.open(advisory.Config{MaxConns: 3}), s.open(advisory.Config{MaxConns: 4})
		require.NoError(s, s.acquire(a, orders.ID(1)).Release())
		lock := s.acquire(b, orders.ID(1))
		ran, err := a.DoOrSkip(s.Context(), orders.ID(1), func(context.Context) error { return nil })
		require.NoError(s, err)
		require.False(s, ran)
		statements := samples(s, s.registry, "pglatch_lock_statements_total")
		s.expect("pglatch_lock_sessions_max", " 7")
		s.expect("pglatch_lock_skips_total", " 1")
		a.Close()
		s.expect("pglatch_lock_sessions_max", " 4")
		s.expect("pglatch_lock_skips_total", " 1")
		s.expect("pglatch_lock_statements_total", statements...)
		require.NoError(s, lock.Release())
	})
}

func TestTheMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	play(t, func(s *scene) {
		l := s.open(advisory.Config{})
		require.NoError(s, s.acquire(l, orders.ID(1)).Release())
		problems, err := testutil.GatherAndLint(s.registry)
		require.NoError(s, err)
		assert.Empty(s, problems)
	})
}
