package cli

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/namespace"
)

// tellAfter is how long a command waits for a lock before it says for whom.
const tellAfter = time.Second

// tellWait says on stderr whom a wait is for, once it has lasted for a while. The
// caller calls stop when the wait is over.
func (a *App) tellWait(ctx context.Context, key namespace.Key) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		select {
		case <-time.After(tellAfter):
			holders := a.holders(ctx, key)
			if ctx.Err() == nil {
				a.logger.Info("waiting for the lock", slog.String("key", key.String()), slog.String("held_by", holders))
			}
		case <-ctx.Done():
		}
	})
	return func() {
		cancel()
		telling.Wait()
	}
}

// holders are the sessions that hold a key, for people.
func (a *App) holders(ctx context.Context, key namespace.Key) string {
	m, err := a.openMonitor(nil)
	if err != nil {
		return "unknown: " + err.Error()
	}
	defer m.Close()
	s, err := m.Snapshot(ctx)
	if err != nil {
		return "unknown: " + oneLine(err.Error())
	}
	var names []string
	for _, l := range statusOf(key, s).Holders {
		names = append(names, sessionText(l))
	}
	if names == nil {
		return "nobody at this moment"
	}
	return strings.Join(names, "; ")
}
