package lockcmd

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/namespace"
)

// tellAfter is how long a command waits for a lock before it names the holder.
const tellAfter = time.Second

// tellWait names the holder of the lock on stderr, once a wait has lasted for a while. The caller
// calls stop when the wait is over.
func tellWait(ctx context.Context, app *program.App, key namespace.Key) (stop func()) {
	return background.Run(ctx, func(ctx context.Context) {
		if pause.For(ctx, tellAfter) != nil {
			return
		}
		if names := holders(ctx, app, key); ctx.Err() == nil {
			app.Logger().Info("waiting for the lock", slog.String("key", key.String()), slog.String("held_by", names))
		}
	})
}

// holders returns the holders of a key as text for people.
func holders(ctx context.Context, app *program.App, key namespace.Key) string {
	v, err := lookup.Once(ctx, app)
	if err != nil {
		return "unknown: " + program.OneLine(err.Error())
	}
	var names []string
	for _, r := range (overview.Filter{Tag: key.Tag()}).Apply(v.Rows()) {
		for _, p := range r.Holders {
			names = append(names, program.Printable(p.String()))
		}
	}
	if names == nil {
		return "nobody at this moment"
	}
	return strings.Join(names, "; ")
}
