// Package lookup looks at the locks of a database, and asks the processes that use them.
package lookup

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/cli/overview"
	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A Looker looks at one database, any number of times. It is for one goroutine.
type Looker struct {
	app     *program.App
	monitor *monitor.Monitor
	conn    *pgx.Conn // on which processes are asked; nil = none yet, or it was lost
}

// Open makes a Looker, which connects when it first looks. The caller closes it. A logger
// is told when the database stops answering, and answers again.
func Open(app *program.App, logger *slog.Logger) (*Looker, error) {
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, err
	}
	m, err := monitor.Open(monitor.Config{ConnConfig: cc, Namespaces: app.Namespaces(), MinInterval: 1, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &Looker{app: app, monitor: m}, nil
}

// Close closes the connections.
func (l *Looker) Close() {
	l.monitor.Close()
	l.disconnect()
}

// A View is what one look saw.
type View struct {
	monitor.Snapshot
	Answers introspect.Answers
}

// Rows are the keys of a view.
func (v View) Rows(known ...namespace.Key) []*overview.Row {
	return overview.Of(v.Snapshot, v.Answers, known...)
}

// Look looks once. That processes cannot be asked is no error: PostgreSQL's view is there, and
// the reason is logged as a detail.
func (l *Looker) Look(ctx context.Context, q introspect.Question) (View, error) {
	var v View
	var asking sync.WaitGroup
	asking.Go(func() {
		var err error
		if v.Answers, err = l.Ask(ctx, q); err != nil && ctx.Err() == nil {
			l.app.Logger().Debug("the processes cannot be asked", slog.Any("error", err))
		}
	})
	s, err := l.monitor.Snapshot(ctx)
	asking.Wait()
	v.Snapshot = s
	return v, program.Unavailable(ctx, err)
}

// askTimeout bounds connecting, asking and waiting for those who do not answer.
const askTimeout = 5 * time.Second

// limit is how much each process is to tell.
const limit = 5000

// Ask asks the processes.
func (l *Looker) Ask(ctx context.Context, q introspect.Question) (introspect.Answers, error) {
	q.Limit = limit
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errors.New("they cannot be reached in time"))
	defer cancel()
	if err := l.connect(ctx); err != nil {
		return introspect.Answers{}, err
	}
	a, err := l.app.Ask(ctx, l.conn, q)
	if l.conn.IsClosed() {
		l.disconnect()
	}
	return a, err
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
func Once(ctx context.Context, app *program.App, q introspect.Question) (View, error) {
	l, err := Open(app, nil)
	if err != nil {
		return View{}, err
	}
	defer l.Close()
	return l.Look(ctx, q)
}

// TellHidden logs what PostgreSQL hides.
func (v View) TellHidden(app *program.App) {
	if v.Partial {
		app.Logger().Info("columns are hidden", slog.String("columns", strings.Join(v.Hidden, ",")),
			slog.String("remedy", "GRANT pg_read_all_stats to the role"))
	}
}
