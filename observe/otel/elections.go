package otel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
)

// Watch traces the leaderships of an Elector, from now until stop is called. stop blocks until the
// watch has ended.
func Watch(provider trace.TracerProvider, elector *leader.Elector) (stop func()) {
	tracer := provider.Tracer(scope)
	var span trace.Span // of the current leadership
	end := background.Read(elector.Events, func(v leader.Event) {
		switch {
		case v.Kind == leader.EventAcquired:
			_, span = tracer.Start(context.Background(), "leadership", trace.WithTimestamp(v.Time), trace.WithAttributes(
				attribute.String("pglatch.election.name", elector.Config().Name), attribute.String("pglatch.election.identity", elector.Config().Identity)),
				trace.WithAttributes(term(v.Term)...))
		case span == nil: // of a leadership that began earlier, or of none
		case v.Kind == leader.EventRecovered:
			span.AddEvent("recovered", trace.WithTimestamp(v.Time), trace.WithAttributes(term(v.Term)...))
		case v.Kind == leader.EventReleased, v.Kind == leader.EventLost:
			if v.Err != nil {
				fail(span, v.Err)
			}
			span.End(trace.WithTimestamp(v.Time))
			span = nil
		case v.Kind == leader.EventError && errors.Is(v.Err, leader.ErrConnection): // a renewal that failed, but leadership is not lost yet
			span.RecordError(v.Err, trace.WithTimestamp(v.Time))
		}
	})
	return sync.OnceFunc(func() {
		end()
		if span != nil { // the leadership continues, unwatched
			span.End()
		}
	})
}

func term(t leader.Term) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("pglatch.election.term", t.String())}
	if !t.IsZero() {
		all = append(all, attribute.Int64("pglatch.election.fencing_token", int64(t.Uint64()))) //nolint:gosec // it fits: its range is limited
	}
	return all
}
