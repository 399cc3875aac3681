package background

import (
	"context"
	"log/slog"
)

// Logger returns a Logger whose methods always return, although the handler of log is code of the program,
// and can panic or end its goroutine. nil = discard.
func Logger(log *slog.Logger) *slog.Logger {
	if log == nil || log.Handler() == slog.DiscardHandler {
		return slog.New(slog.DiscardHandler)
	}
	if _, is := log.Handler().(handler); is {
		return log
	}
	return slog.New(handler{log.Handler()})
}

// A handler outlives the program's handler. A record that the program's handler does not accept is
// dropped.
type handler struct{ of slog.Handler }

// Enabled implements slog.Handler.
func (h handler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	_ = Outlive(func() error { enabled = h.of.Enabled(ctx, level); return nil })
	return enabled
}

// Handle implements slog.Handler.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	return Outlive(func() error { return h.of.Handle(ctx, r) })
}

// WithAttrs implements slog.Handler.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := h.of
	_ = Outlive(func() error { with = h.of.WithAttrs(attrs); return nil })
	return handler{with}
}

// WithGroup implements slog.Handler.
func (h handler) WithGroup(name string) slog.Handler {
	with := h.of
	_ = Outlive(func() error { with = h.of.WithGroup(name); return nil })
	return handler{with}
}
