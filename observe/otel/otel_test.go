package otel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/namespace"
	locktrace "github.com/pglatch/pglatch/observe/otel"
)

var orders = namespace.Must(2, "order")

// tracing returns a provider and the spans that have ended.
func tracing() (*sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)), recorder
}

func open(t *testing.T, server *advisorytest.Server, provider *sdktrace.TracerProvider, config advisory.Config) *advisory.Locker {
	t.Helper()
	config.Tracer = locktrace.Tracer(provider)
	l, err := server.Open(config)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// named are the spans of a name, in the order of their ends.
func named(from *tracetest.SpanRecorder, name string) (all []sdktrace.ReadOnlySpan) {
	for _, s := range from.Ended() {
		if s.Name() == name {
			all = append(all, s)
		}
	}
	return all
}

func lasted(s sdktrace.ReadOnlySpan) time.Duration { return s.EndTime().Sub(s.StartTime()) }

func TestAWaitIsLinkedToTheHoldThatItWaitsForAndAHandOverToTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, ended := tracing()
		l := open(t, advisorytest.NewServer(), provider, advisory.Config{HandOverBudget: time.Hour})
		slow, slowSpan := provider.Tracer("test").Start(t.Context(), "slow")
		waits, waitsSpan := provider.Tracer("test").Start(t.Context(), "waits")
		first, err := l.With(advisory.Options{Label: "invoice run"}).Acquire(slow, orders.ID(1))
		require.NoError(t, err)
		second := make(chan *advisory.Lock)
		go func() { lock, _ := l.Acquire(waits, orders.ID(1)); second <- lock }()
		synctest.Wait()
		third := make(chan *advisory.Lock)
		go func() { lock, _ := l.Acquire(context.Background(), orders.ID(1)); third <- lock }()
		bubble.Sleep(3 * time.Second)
		require.NoError(t, first.Release())
		two := <-second
		bubble.Sleep(time.Second)
		require.NoError(t, two.Release())
		require.NoError(t, (<-third).Release())

		holds, wait := named(ended, "lock hold"), named(ended, "lock wait")
		require.Len(t, holds, 3)
		require.Len(t, wait, 2)
		assert.Equal(t, 3*time.Second, lasted(holds[0]))
		assert.Equal(t, 3*time.Second, lasted(wait[0]))
		assert.Equal(t, slowSpan.SpanContext().SpanID(), holds[0].Parent().SpanID())
		assert.Equal(t, waitsSpan.SpanContext().SpanID(), wait[0].Parent().SpanID())
		require.Len(t, wait[0].Links(), 1)
		assert.Equal(t, holds[0].SpanContext().SpanID(), wait[0].Links()[0].SpanContext.SpanID())
		for i, hold := range holds[1:] {
			require.Len(t, hold.Links(), 1, "hold %d", i+1)
			assert.Equal(t, holds[i].SpanContext().SpanID(), hold.Links()[0].SpanContext.SpanID(), "hold %d", i+1)
			assert.Contains(t, hold.Attributes(), attribute.Bool("pglatch.lock.hand_over", true))
		}
		assert.Empty(t, holds[0].Links())
		for _, a := range []attribute.KeyValue{
			attribute.String("db.system.name", "postgresql"), attribute.String("pglatch.lock.key", "order/1"), attribute.String("pglatch.lock.namespace", "order"),
			attribute.String("pglatch.lock.mode", "exclusive"), attribute.String("pglatch.lock.label", "invoice run"), attribute.Bool("pglatch.lock.hand_over", false),
		} {
			assert.Contains(t, holds[0].Attributes(), a)
		}
		assert.Contains(t, wait[1].Attributes(), attribute.Int("pglatch.lock.waiters_ahead", 1))
	})
}

func TestErrorsAreRecordedAndATryThatFindsTheLockHeldIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, ended := tracing()
		server := advisorytest.NewServer()
		l, other := open(t, server, provider, advisory.Config{}), open(t, server, sdktrace.NewTracerProvider(), advisory.Config{})
		foreign, err := other.Acquire(t.Context(), orders.ID(1))
		require.NoError(t, err)
		_, err = l.With(advisory.Options{Wait: time.Second}).Acquire(t.Context(), orders.ID(1))
		require.ErrorIs(t, err, advisory.ErrTimeout)
		_, err = l.TryAcquire(t.Context(), orders.ID(1))
		require.ErrorIs(t, err, advisory.ErrHeld)
		require.NoError(t, foreign.Release())
		lock, err := l.Acquire(t.Context(), orders.ID(1))
		require.NoError(t, err)
		server.Kill(lock.PID())
		<-lock.Lost()
		require.ErrorIs(t, lock.Release(), advisory.ErrLost)
		synctest.Wait()
		waits, holds := named(ended, "lock wait"), named(ended, "lock hold")
		require.Len(t, waits, 2)
		require.Len(t, holds, 1)
		assert.Equal(t, codes.Error, waits[0].Status().Code)
		assert.Len(t, waits[0].Events(), 1)
		assert.Equal(t, time.Second, lasted(waits[0]))
		assert.Empty(t, waits[0].Links(), "another process holds it")
		assert.Equal(t, codes.Unset, waits[1].Status().Code)
		assert.Contains(t, waits[1].Attributes(), attribute.String("pglatch.lock.result", "held"))
		assert.Equal(t, codes.Error, holds[0].Status().Code)
	})
}

func TestALeadershipIsASpanThatEndsWithItsLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		provider, ended := tracing()
		election := leadertest.NewElection()
		e, err := leader.New(leader.Config{Name: "scheduler", Identity: "a", Backend: election.Backend()})
		require.NoError(t, err)
		stop := locktrace.Watch(provider, e)
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.WaitForLeadership(t.Context()))
		bubble.Sleep(time.Second)
		election.Kill()
		bubble.Sleep(time.Minute)
		require.NoError(t, e.Shutdown(t.Context()))
		stop()
		spans := named(ended, "leadership")
		require.Len(t, spans, 2)
		assert.Equal(t, time.Second, lasted(spans[0]))
		assert.Equal(t, codes.Error, spans[0].Status().Code)
		assert.Equal(t, codes.Unset, spans[1].Status().Code)
		assert.Contains(t, spans[0].Attributes(), attribute.String("pglatch.election.term", "1.1"))
		assert.Contains(t, spans[1].Attributes(), attribute.String("pglatch.election.identity", "a"))
	})
}
