package otel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/pglatch/pglatch/turns"
)

// traceParent is the key of the W3C header.
const traceParent = "traceparent"

// TraceParent returns the W3C traceparent of the span in ctx, for the Trace of a turns.Message. "" = there is none.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceParent]
}

// Turns returns a handler that calls handler in a span, so that a trace leads from Send to Commit. The span is a child
// of the span that sent the first message with a TraceParent, and has a link to the spans of the others.
func Turns(provider trace.TracerProvider, handler turns.Handler) turns.Handler {
	tracer := provider.Tracer(scope)
	return func(ctx context.Context, t *turns.Turn) error {
		messages := t.Messages()
		ctx, links := sentBy(ctx, messages)
		ctx, span := tracer.Start(ctx, "turn", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...), trace.WithAttributes(
			attribute.String("db.system.name", "postgresql"), attribute.String("pglatch.turn.key", t.Entity().String()),
			attribute.Int("pglatch.turn.attempt", t.Attempt()), attribute.Int("pglatch.turn.messages", len(messages))))
		defer span.End() // of a panic, too
		err := handler(ctx, t)
		if err != nil {
			fail(span, err)
		}
		return err
	}
}

// sentBy returns ctx with the span that sent the first message as the parent, and links to the spans of the others.
func sentBy(ctx context.Context, messages []turns.Message) (parent context.Context, links []trace.Link) {
	var first trace.SpanContext
	seen := map[trace.SpanID]bool{}
	for _, m := range messages {
		span := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceParent: m.Trace}))
		switch {
		case !span.IsValid() || seen[span.SpanID()]:
			continue
		case len(seen) == 0:
			first = span
		default:
			links = append(links, trace.Link{SpanContext: span})
		}
		seen[span.SpanID()] = true
	}
	return trace.ContextWithRemoteSpanContext(ctx, first), links // an invalid one removes that of Serve's caller
}
