package otel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

const scope = "github.com/pglatch/pglatch/observe/otel"

// A locks keeps the open spans.
type locks struct {
	tracer trace.Tracer

	mu    sync.Mutex
	waits map[any]*wait // by WaitData.Request, from its Wait to its Acquire
	holds map[any]*hold // by AcquireData.Request
	keys  map[namespace.Tag]*key
}

// A wait is a waiting request.
type wait struct {
	span trace.Span
	tag  namespace.Tag
}

// A hold is a held lock.
type hold struct {
	span trace.Span
	tag  namespace.Tag
}

// A key is a key that this process holds or waits for.
type key struct {
	holds   map[*hold]struct{}
	waiting int
	last    trace.SpanContext // of the hold that ended last while a request waited
}

// Tracer returns the Tracer for an advisory.Config, for any number of Lockers. To combine it with
// another Tracer, use advisory.MultiTracer.
func Tracer(provider trace.TracerProvider) advisory.Tracer { return newLocks(provider).told() }

func newLocks(provider trace.TracerProvider) *locks {
	return &locks{
		tracer: provider.Tracer(scope), waits: make(map[any]*wait), holds: make(map[any]*hold), keys: make(map[namespace.Tag]*key),
	}
}

// told returns the callbacks that receive the events.
func (l *locks) told() advisory.Tracer {
	return advisory.Tracer{Wait: l.wait, Acquire: l.acquire, Release: l.release, Loss: l.loss}
}

// attributes are the attributes of every span about a lock.
func attributes(key namespace.Key, label string, shared bool) []attribute.KeyValue {
	mode := "exclusive"
	if shared {
		mode = "shared"
	}
	all := []attribute.KeyValue{
		attribute.String("db.system.name", "postgresql"), attribute.String("pglatch.lock.key", key.String()), attribute.String("pglatch.lock.mode", mode),
	}
	if name := key.Namespace().Name(); name != "" {
		all = append(all, attribute.String("pglatch.lock.namespace", name))
	}
	if label != "" {
		all = append(all, attribute.String("pglatch.lock.label", label))
	}
	return all
}

// keyLocked returns the state of a key.
func (l *locks) keyLocked(tag namespace.Tag) *key {
	k := l.keys[tag]
	if k == nil {
		k = &key{holds: make(map[*hold]struct{})}
		l.keys[tag] = k
	}
	return k
}

// forgetLocked forgets a key that has neither holds nor waits.
func (l *locks) forgetLocked(tag namespace.Tag, k *key) {
	if k.waiting == 0 && len(k.holds) == 0 {
		delete(l.keys, tag)
	}
}

// links returns links to the spans of the requests that hold the key in this process, or held it
// last. The release of a lock that is handed over comes before or after the hold that follows.
func (k *key) links() (links []trace.Link) {
	for h := range k.holds {
		links = append(links, trace.Link{SpanContext: h.span.SpanContext()})
	}
	if links == nil && k.last.IsValid() {
		links = []trace.Link{{SpanContext: k.last}}
	}
	return links
}

func (l *locks) start(ctx context.Context, name string, of []attribute.KeyValue, options ...trace.SpanStartOption) trace.Span {
	options = append(options, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(of...))
	_, span := l.tracer.Start(ctx, name, options...)
	return span
}

func (l *locks) wait(ctx context.Context, d advisory.WaitData) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waits[d.Request] != nil {
		return // a wait of AcquireAll for an earlier key
	}
	tag := d.Key.Tag()
	k := l.keyLocked(tag)
	k.waiting++
	l.waits[d.Request] = &wait{tag: tag, span: l.start(ctx, "lock wait", attributes(d.Key, d.Label, d.Shared), trace.WithLinks(k.links()...),
		trace.WithAttributes(attribute.Int("pglatch.lock.waiters_ahead", d.Ahead)))}
}

func (l *locks) acquire(ctx context.Context, d advisory.AcquireData) {
	l.endWait(ctx, d)
	if d.Err == nil {
		l.hold(ctx, d)
	}
}

// endWait ends the span of a wait, or creates one for a request that failed without a wait.
func (l *locks) endWait(ctx context.Context, d advisory.AcquireData) {
	l.mu.Lock()
	w := l.waits[d.Request]
	if d.Err != nil {
		l.doneLocked(d.Request)
	}
	l.mu.Unlock()
	switch {
	case w == nil && d.Err == nil:
		return // it did not wait
	case w == nil:
		w = &wait{span: l.start(ctx, "lock wait", attributes(d.Key, d.Label, d.Shared), trace.WithTimestamp(time.Now().Add(-d.Waited)))}
	}
	if _, isTry := errors.AsType[*advisory.HeldError](d.Err); isTry {
		w.span.SetAttributes(attribute.String("pglatch.lock.result", "held"))
	} else if d.Err != nil {
		fail(w.span, d.Err)
	}
	w.span.End()
}

// doneLocked forgets a waiting request.
func (l *locks) doneLocked(request any) {
	if w := l.waits[request]; w != nil {
		delete(l.waits, request)
		k := l.keyLocked(w.tag)
		k.waiting--
		l.forgetLocked(w.tag, k)
	}
}

func fail(span trace.Span, err error) {
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}

func (l *locks) hold(ctx context.Context, d advisory.AcquireData) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &hold{tag: d.Key.Tag()}
	k := l.keyLocked(h.tag)
	var links []trace.Link
	if d.HandOver {
		links = k.links()
	}
	k.last = trace.SpanContext{}
	h.span = l.start(ctx, "lock hold", attributes(d.Key, d.Label, d.Shared), trace.WithLinks(links...), trace.WithAttributes(
		attribute.Bool("pglatch.lock.hand_over", d.HandOver), attribute.Int64("pglatch.lock.session_pid", int64(d.PID))))
	k.holds[h] = struct{}{}
	l.holds[d.Request] = h
	l.doneLocked(d.Request)
}

// ended removes a hold and returns it; nil if there was none.
func (l *locks) ended(request any) *hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.holds[request]
	if h == nil {
		return nil
	}
	delete(l.holds, request)
	k := l.keyLocked(h.tag)
	delete(k.holds, h)
	if k.waiting > 0 {
		k.last = h.span.SpanContext()
	}
	l.forgetLocked(h.tag, k)
	return h
}

func (l *locks) loss(_ context.Context, d advisory.LossData) {
	l.end(d.Request, d.Err, attribute.String("pglatch.lock.loss_reason", d.Reason))
}

// A lost lock's hold has already ended when its release arrives.
func (l *locks) release(_ context.Context, d advisory.ReleaseData) { l.end(d.Request, d.Err) }

func (l *locks) end(request any, err error, more ...attribute.KeyValue) {
	h := l.ended(request)
	if h == nil {
		return
	}
	h.span.SetAttributes(more...)
	if err != nil {
		fail(h.span, err)
	}
	h.span.End()
}
