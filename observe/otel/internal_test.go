package otel

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

func TestNothingIsKeptOfRequestsAndLocksThatEnded(t *testing.T) {
	t.Parallel()
	server, l := advisorytest.NewServer(), newLocks(sdktrace.NewTracerProvider())
	locker, err := server.Open(advisory.Config{Tracer: l.told()})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	orders := namespace.Must(2, "order")
	var all sync.WaitGroup
	for worker := range uint64(8) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, worker)) //nolint:gosec // it is no secret
			for range 200 {
				options := advisory.Options{Wait: time.Duration(r.IntN(3)+1) * time.Millisecond, Shared: r.IntN(2) == 0}
				keys := []namespace.Key{orders.ID(r.Int64N(3)), orders.ID(r.Int64N(3))}
				lock, err := locker.With(options).AcquireAll(context.Background(), keys[r.IntN(2):]...)
				if err != nil {
					continue
				}
				if r.IntN(20) == 0 {
					server.Kill(lock.PID())
				}
				_ = lock.Release()
			}
		})
	}
	all.Wait()
	locker.Close()
	assert.Empty(t, l.waits)
	assert.Empty(t, l.holds)
	assert.Empty(t, l.keys)
}

func TestATraceLeadsFromTheSenderToTheTurn(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	send := func() (trace.SpanContext, turns.Message) {
		ctx, span := provider.Tracer("test").Start(t.Context(), "send")
		defer span.End()
		return span.SpanContext(), turns.Message{Trace: TraceParent(ctx)}
	}
	first, a := send()
	second, b := send()
	ctx, links := sentBy(t.Context(), []turns.Message{{}, {Trace: "of another kind"}, a, b, a, b})
	assert.Equal(t, first.SpanID(), trace.SpanContextFromContext(ctx).SpanID())
	require.Len(t, links, 1, "each sender once")
	assert.Equal(t, second.SpanID(), links[0].SpanContext.SpanID())

	ctx, links = sentBy(ctx, []turns.Message{{}})
	assert.False(t, trace.SpanContextFromContext(ctx).IsValid(), "control: nobody who sent is known")
	assert.Empty(t, links)
	assert.Empty(t, TraceParent(t.Context()))
}

func TestATurnIsASpanWithItsError(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	wrong := errors.New("no model")
	handler := Turns(provider, func(ctx context.Context, _ *turns.Turn) error {
		assert.True(t, trace.SpanContextFromContext(ctx).IsValid(), "the handler's spans are children")
		return wrong
	})
	require.ErrorIs(t, handler(t.Context(), &turns.Turn{}), wrong)
	spans := recorder.Ended()
	require.Len(t, spans, 1)
	assert.Equal(t, "turn", spans[0].Name())
	assert.Equal(t, codes.Error, spans[0].Status().Code)
	assert.Equal(t, trace.SpanKindConsumer, spans[0].SpanKind())
	assert.False(t, spans[0].Parent().IsValid())
}
