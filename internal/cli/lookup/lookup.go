// Package lookup looks at the locks of a database, and asks the processes that use them.
package lookup

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/cli/overview"
	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A Looker looks at one database, any number of times. It is for one goroutine.
type Looker struct {
	app     *program.App
	monitor *monitor.Monitor
	conn    *pgx.Conn // on which requests are sent; nil = none yet, or it was lost
}

// Open makes a Looker, which connects when it first looks. The caller closes it. A logger
// is told when the database stops answering, and answers again. long is from when on a lock that is
// held is worth a verdict; 0 = 5 minutes.
func Open(app *program.App, logger *slog.Logger, long time.Duration) (*Looker, error) {
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, err
	}
	m, err := monitor.Open(monitor.Config{ConnConfig: cc, Namespaces: app.Namespaces(), MinInterval: sameLook, LongHold: long, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &Looker{app: app, monitor: m}, nil
}

// sameLook is how long what was seen, and what is wrong in it, are of one look.
const sameLook = 100 * time.Millisecond

// Close closes the connections.
func (l *Looker) Close() {
	l.monitor.Close()
	l.disconnect()
}

// A View is what one look saw.
type View struct {
	monitor.Snapshot
	Verdicts []monitor.Verdict // if it was asked for
}

// Rows are the keys of a view.
func (v View) Rows(known ...namespace.Key) []*overview.Row { return overview.Of(v.Snapshot, known...) }

// Look looks once.
func (l *Looker) Look(ctx context.Context) (View, error) {
	s, err := l.monitor.Snapshot(ctx)
	return View{Snapshot: s}, program.Unavailable(ctx, err)
}

// Judge looks once, and says what is wrong; some of it only if it was wrong before, too.
func (l *Looker) Judge(ctx context.Context) (View, error) {
	verdicts, err := l.monitor.Verdicts(ctx)
	if err != nil {
		return View{}, program.Unavailable(ctx, err)
	}
	v, err := l.Look(ctx)
	v.Verdicts = verdicts
	return v, err
}

// What is wrong must have been seen for 1.5 s before some of it is told, by the server's clock.
const (
	observeFor   = 1700 * time.Millisecond
	observeEvery = 400 * time.Millisecond
)

// Observe looks for about two seconds, and says what is wrong.
func (l *Looker) Observe(ctx context.Context) (View, error) {
	for first := (time.Time{}); ; {
		v, err := l.Judge(ctx)
		if first.IsZero() {
			first = v.Server.Now
		}
		if err != nil || v.Server.Now.Sub(first) >= observeFor {
			return v, err
		}
		if err := pause.For(ctx, observeEvery); err != nil {
			return v, program.Unavailable(ctx, err)
		}
	}
}

func (l *Looker) connect(ctx context.Context) (err error) {
	if l.conn == nil {
		l.conn, err = l.app.Connect(ctx)
	}
	return err
}

// disconnect closes the connection. The server ends the session when the socket closes, if not before.
func (l *Looker) disconnect() {
	if l.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.conn.Close(ctx)
		l.conn = nil
	}
}

// Once is one look of a command.
func Once(ctx context.Context, app *program.App) (View, error) {
	return with(ctx, app, 0, (*Looker).Look)
}

// Observed is Observe of a command. long is from when on a lock that is held is worth a verdict; 0 = 5 minutes.
func Observed(ctx context.Context, app *program.App, long time.Duration) (View, error) {
	return with(ctx, app, long, (*Looker).Observe)
}

func with(ctx context.Context, app *program.App, long time.Duration, look func(*Looker, context.Context) (View, error)) (View, error) {
	l, err := Open(app, nil, long)
	if err != nil {
		return View{}, err
	}
	defer l.Close()
	return look(l, ctx)
}

// TellHidden logs what PostgreSQL hides.
func (v View) TellHidden(app *program.App) {
	if v.Partial {
		app.Logger().Info("columns are hidden", slog.String("columns", strings.Join(v.Hidden, ",")),
			slog.String("remedy", "GRANT pg_read_all_stats to the role"))
	}
}

// Primary is an error if the server is a standby: what it has says nothing of the primary's locks.
func (v View) Primary() error {
	if !v.Server.Standby {
		return nil
	}
	return &program.ExitError{Code: program.ExitUnavailable, Err: errors.New(
		"this server is a standby, which does not have the primary's locks: point the connection string at the primary (target_session_attrs=primary)")}
}
