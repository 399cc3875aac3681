package advisory

import "context"

// JoinTracers returns a Tracer that tells all of them, in their order. One that panics
// keeps the call from those behind it.
func JoinTracers(all ...Tracer) Tracer {
	return Tracer{
		Open: func(l *Locker) func() {
			var closed []func()
			for _, t := range all {
				if t.Open == nil {
					continue
				}
				if f := t.Open(l); f != nil {
					closed = append(closed, f)
				}
			}
			return func() {
				for _, f := range closed {
					f()
				}
			}
		},
		Acquire: join(all, func(t *Tracer) traceFunc { return t.Acquire }),
		Wait:    join(all, func(t *Tracer) traceFunc { return t.Wait }),
		Hold:    join(all, func(t *Tracer) traceFunc { return t.Hold }),
		Release: join(all, func(t *Tracer) traceFunc { return t.Release }),
		Loss:    join(all, func(t *Tracer) traceFunc { return t.Loss }),
	}
}

type traceFunc = func(ctx context.Context, data TraceData)

// join returns nil if none of the tracers has the function: it would cost a clock.
func join(all []Tracer, of func(*Tracer) traceFunc) traceFunc {
	var calls []traceFunc
	for i := range all {
		if call := of(&all[i]); call != nil {
			calls = append(calls, call)
		}
	}
	if calls == nil {
		return nil
	}
	return func(ctx context.Context, data TraceData) {
		for _, call := range calls {
			call(ctx, data)
		}
	}
}
