package postgres

import (
	"context"
	"log/slog"
	"time"
)

// A blocker is what a takeover waits for.
type blocker struct {
	guarded         bool
	pid             uint32
	applicationName string
	role            string
	since           int64 // microseconds since 1970; 0 = hidden
	prepared        string
	needs           string // to end it
}

// begin is when the transaction began, if that is known.
func (by blocker) begin() time.Time {
	if by.since == 0 {
		return time.Time{}
	}
	return time.UnixMicro(by.since)
}

// blockedFor is how long a takeover waits before that is worth a line in the log.
const blockedFor = 100 * time.Millisecond

// blocked notes what a takeover waits for, and logs it once.
func (b *Backend) blocked(t *seat, by blocker) {
	t.blocker = by
	if t.logged == by || by.pid == 0 && by.prepared == "" || time.Since(t.began) < blockedFor {
		return
	}
	t.logged = by
	if by.guarded {
		b.config.Logger.Warn("takeover waits for a guarded transaction", b.about(by)...)
	} else {
		b.config.Logger.Warn("takeover waits for the session of an earlier leader", b.about(by)...)
	}
}

// about is what is known of a blocker, for the log.
func (b *Backend) about(by blocker) []any {
	about := []any{
		slog.String("election", b.config.Key.String()),
		slog.Uint64("pid", uint64(by.pid)), slog.String("application_name", by.applicationName),
	}
	if by.role != "" {
		about = append(about, slog.String("role", by.role))
	}
	if by.since != 0 {
		about = append(about, slog.Time("since", by.begin()))
	}
	if by.prepared != "" {
		about = append(about, slog.String("prepared", by.prepared))
	}
	if by.needs != "" {
		about = append(about, slog.String("needs", by.needs))
	}
	return about
}

func (b *Backend) pending(ctx context.Context, t *seat) error {
	by := t.blocker
	return &PendingError{
		Election: b.config.Key.String(), Guarded: by.guarded, PID: by.pid, ApplicationName: by.applicationName, Role: by.role,
		Since: by.begin(), Prepared: by.prepared, Needs: by.needs,
		Waited: time.Since(t.began), Cause: context.Cause(ctx),
	}
}
