package advisory

import "context"

// MultiTracer returns a Tracer that calls all of them in order. If one panics, those after it are
// not called.
func MultiTracer(all ...Tracer) Tracer {
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
		Wait:    multi(all, func(t *Tracer) func(context.Context, WaitData) { return t.Wait }),
		Acquire: multi(all, func(t *Tracer) func(context.Context, AcquireData) { return t.Acquire }),
		Release: multi(all, func(t *Tracer) func(context.Context, ReleaseData) { return t.Release }),
		Loss:    multi(all, func(t *Tracer) func(context.Context, LossData) { return t.Loss }),
	}
}

// multi returns nil if none of the tracers has the function: a function costs reading the clock.
func multi[D any](all []Tracer, of func(*Tracer) func(context.Context, D)) func(context.Context, D) {
	var calls []func(context.Context, D)
	for i := range all {
		if call := of(&all[i]); call != nil {
			calls = append(calls, call)
		}
	}
	if calls == nil {
		return nil
	}
	return func(ctx context.Context, data D) {
		for _, call := range calls {
			call(ctx, data)
		}
	}
}
