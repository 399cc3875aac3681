package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/pglatch/pglatch/leader/internal/pgguard"
)

// A blocker describes the session or transaction that a takeover waits for.
type blocker struct {
	guarded         bool
	pid             uint32
	applicationName string
	role            string
	begin           time.Time // of the transaction; zero = hidden
	prepared        string
	needs           string // privileges missing to end it
}

func blockerOf(g pgguard.Guarded) blocker {
	by := blocker{guarded: true, pid: g.PID, applicationName: g.ApplicationName, role: g.Role, prepared: g.Prepared}
	if g.SinceMicro != 0 {
		by.begin = time.UnixMicro(g.SinceMicro)
	}
	return by
}

// String begins with ": ", unless nothing is known.
func (by blocker) String() string {
	var b strings.Builder
	switch {
	case by.prepared != "":
		fmt.Fprintf(&b, ": prepared as %q, COMMIT PREPARED or ROLLBACK PREPARED ends it", by.prepared)
	case by.pid != 0:
		fmt.Fprintf(&b, ": backend %d", by.pid)
	case by.guarded:
		return ": not to be seen at the last look"
	default:
		return ""
	}
	if by.applicationName != "" {
		fmt.Fprintf(&b, " (%s)", by.applicationName)
	}
	if by.role != "" {
		fmt.Fprintf(&b, ", of role %s", by.role)
	}
	if !by.begin.IsZero() {
		fmt.Fprintf(&b, ", since %s", by.begin.Format(time.RFC3339))
	}
	if by.needs != "" {
		fmt.Fprintf(&b, ", which the candidate may not end: it needs %s", by.needs)
	}
	return b.String()
}

// blockedFor is how long a takeover waits before it logs the blocker.
const blockedFor = 100 * time.Millisecond

// blocked records the blocker of a takeover and logs it once.
func (b *Backend) blocked(t *lockSession, by blocker) {
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

// about returns the known facts about a blocker, for the log.
func (b *Backend) about(by blocker) []any {
	about := []any{
		slog.Uint64("pid", uint64(by.pid)), slog.String("application_name", by.applicationName),
	}
	if by.role != "" {
		about = append(about, slog.String("role", by.role))
	}
	if !by.begin.IsZero() {
		about = append(about, slog.Time("since", by.begin))
	}
	if by.prepared != "" {
		about = append(about, slog.String("prepared", by.prepared))
	}
	if by.needs != "" {
		about = append(about, slog.String("needs", by.needs))
	}
	return about
}

func (b *Backend) pending(ctx context.Context, t *lockSession) error {
	by := t.blocker
	return &PendingError{
		Election: b.config.Key.String(), Guarded: by.guarded, PID: by.pid, ApplicationName: by.applicationName, Role: by.role,
		Since: by.begin, Prepared: by.prepared, Needs: by.needs,
		Waited: time.Since(t.began), Cause: context.Cause(ctx),
	}
}
