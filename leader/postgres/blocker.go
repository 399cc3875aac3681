package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/pglatch/pglatch/leader/internal/pgguard"
)

// guardedBy describes a guarded transaction that a takeover waits for.
func guardedBy(g pgguard.Guarded) PendingError {
	return PendingError{Guarded: true, PID: g.PID, ApplicationName: g.ApplicationName, Role: g.Role, Since: g.Since(), Prepared: g.Prepared}
}

// blocker returns the known facts about the blocker, after ": ", or "" if nothing is known.
func (e *PendingError) blocker() string {
	var b strings.Builder
	switch {
	case e.Prepared != "":
		fmt.Fprintf(&b, ": prepared as %q, COMMIT PREPARED or ROLLBACK PREPARED ends it", e.Prepared)
	case e.PID != 0:
		fmt.Fprintf(&b, ": backend %d", e.PID)
	case e.Guarded:
		return ": not to be seen at the last look"
	default:
		return ""
	}
	if e.ApplicationName != "" {
		fmt.Fprintf(&b, " (%s)", e.ApplicationName)
	}
	if e.Role != "" {
		fmt.Fprintf(&b, ", of role %s", e.Role)
	}
	if !e.Since.IsZero() {
		fmt.Fprintf(&b, ", since %s", e.Since.Format(time.RFC3339))
	}
	if e.Needs != "" {
		fmt.Fprintf(&b, ", which the candidate may not end: it needs %s", e.Needs)
	}
	return b.String()
}

// blockedFor is how long a takeover waits before it logs the blocker.
const blockedFor = 100 * time.Millisecond

// blocked records the blocker of a takeover and logs it once.
func (b *Backend) blocked(t *lockSession, by PendingError) {
	t.blocker = by
	if t.logged == by || by.PID == 0 && by.Prepared == "" || time.Since(t.began) < blockedFor {
		return
	}
	t.logged = by
	if by.Guarded {
		b.config.Logger.Warn("takeover waits for a guarded transaction", b.about(by)...)
	} else {
		b.config.Logger.Warn("takeover waits for the session of an earlier leader", b.about(by)...)
	}
}

// about returns the known facts about a blocker, for the log.
func (b *Backend) about(by PendingError) []any {
	about := []any{
		slog.Uint64("pid", uint64(by.PID)), slog.String("application_name", by.ApplicationName),
	}
	if by.Role != "" {
		about = append(about, slog.String("role", by.Role))
	}
	if !by.Since.IsZero() {
		about = append(about, slog.Time("since", by.Since))
	}
	if by.Prepared != "" {
		about = append(about, slog.String("prepared", by.Prepared))
	}
	if by.Needs != "" {
		about = append(about, slog.String("needs", by.Needs))
	}
	return about
}

func (b *Backend) pending(ctx context.Context, t *lockSession) error {
	by := t.blocker
	by.Election, by.Waited, by.Cause = b.config.Key.String(), time.Since(t.began), context.Cause(ctx)
	return &by
}
