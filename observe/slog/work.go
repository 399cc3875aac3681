package slog

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader"
)

// The messages of work records, which "pglatch leader verify" reads.
const (
	WorkBegan = "work_began"
	WorkEnded = "work_ended"
)

// Work returns a function for Elector.Run that runs work and logs its start and end, with its
// term: a WorkBegan before work is called, and a WorkEnded after it has returned or panicked.
func Work(log *slog.Logger, elector *leader.Elector, work func(ctx context.Context) error) func(ctx context.Context) error {
	log = elector.Logger(log).With(slog.String("identity", elector.Config().Identity), slog.String("clock", clock()))
	return func(ctx context.Context) (err error) {
		began := time.Now()
		all := append(term(leader.TermOfContext(ctx)), instant("began", began))
		log.LogAttrs(ctx, slog.LevelInfo, WorkBegan, all...)
		defer func() {
			ended := time.Now()
			all = append(all, instant("ended", ended), slog.Duration("lasted", ended.Sub(began)))
			if err != nil {
				all = append(all, slog.Any("error", err))
			}
			log.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, WorkEnded, all...)
		}()
		return work(ctx)
	}
}

// instant returns a time as text, so that the handler's format for times does not matter.
func instant(key string, t time.Time) slog.Attr {
	return slog.String(key, t.UTC().Format(time.RFC3339Nano))
}

// clock is the same for all processes that read one kernel's clock, or "" if it is unknown.
var clock = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
