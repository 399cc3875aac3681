// Package lookup queries the locks of a database, and asks the processes that use them.
package lookup

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/cmd/internal/fleetreader"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A Looker queries one database, any number of times. Only one goroutine may use it.
type Looker struct {
	app     *program.App
	monitor *monitor.Monitor
	fleet   *fleetreader.Reader
	conn    *pgx.Conn // for requests; nil = none yet, or it was lost
}

// Open returns a Looker, which connects at its first query. The caller closes it. logger receives when the
// database stops answering, and answers again. long is the hold time from which a held lock gets a verdict; 0 =
// 5 minutes.
func Open(app *program.App, logger *slog.Logger, long time.Duration) (*Looker, error) {
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, err
	}
	reader := fleetreader.New(cc)
	m, err := monitor.Open(monitor.Config{ConnConfig: cc, Namespaces: app.Namespaces(), MinInterval: sameLook, LongHold: long, Fleet: reader.Read, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &Looker{app: app, monitor: m, fleet: reader}, nil
}

// sameLook is how long a snapshot and its verdicts count as one query.
const sameLook = 100 * time.Millisecond

// Close closes the connections.
func (l *Looker) Close() {
	l.monitor.Close()
	l.fleet.Close()
	l.disconnect()
}

// A View is the result of one query.
type View struct {
	monitor.Snapshot
	Verdicts []monitor.Verdict // if requested
}

// Rows returns the keys of a view.
func (v View) Rows(known ...namespace.Key) []*overview.Row { return overview.Of(v.Snapshot, known...) }

// Look queries once.
func (l *Looker) Look(ctx context.Context) (View, error) {
	s, err := l.monitor.Snapshot(ctx)
	return View{Snapshot: s}, program.Unavailable(ctx, err)
}

// Judge queries once, and returns the current problems. It includes some only if an earlier query saw them too.
func (l *Looker) Judge(ctx context.Context) (View, error) {
	verdicts, err := l.monitor.Verdicts(ctx)
	if err != nil {
		return View{}, program.Unavailable(ctx, err)
	}
	v, err := l.Look(ctx)
	v.Verdicts = verdicts
	return v, err
}

// Some problems are reported only after they were seen for 1.5 s, by the server's clock.
const (
	observeFor   = 1700 * time.Millisecond
	observeEvery = 400 * time.Millisecond
	tablesWithin = 10 * time.Second // the tables are read beside the locks, and on a busy server later
)

// Observe queries for about two seconds, or until it has read the tables, and returns the current problems.
func (l *Looker) Observe(ctx context.Context) (View, error) {
	for first := (time.Time{}); ; {
		v, err := l.Judge(ctx)
		if first.IsZero() {
			first = v.Server.Now
		}
		if took := v.Server.Now.Sub(first); err != nil || took >= observeFor && (v.Fleet != nil || took >= tablesWithin) {
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

// disconnect closes the connection. The server ends the session at the latest when the socket closes.
func (l *Looker) disconnect() {
	if l.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.conn.Close(ctx)
		l.conn = nil
	}
}

// Once makes one query for a command.
func Once(ctx context.Context, app *program.App) (View, error) {
	return with(ctx, app, 0, (*Looker).Look)
}

// Observed is Observe for a command. long is the hold time from which a held lock gets a verdict; 0 = 5
// minutes.
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

// TellHidden logs which columns PostgreSQL hides.
func (v View) TellHidden(app *program.App) {
	if v.Partial {
		app.Logger().Info("columns are hidden", slog.String("columns", strings.Join(v.Hidden, ",")),
			slog.String("remedy", "GRANT pg_read_all_stats to the role"))
	}
}

// Unread returns why tables were not read. What they have is missing in the view, and so are verdicts about it.
func (v View) Unread() []string {
	if v.Fleet == nil {
		return []string{"the tables of shards, ticks, turns and leases were not read"}
	}
	return v.Fleet.Problems
}

// Unknown returns an error if tables were not read: whether anything is wrong with what they have is unknown.
func (v View) Unknown() error {
	unread := v.Unread()
	if len(unread) == 0 {
		return nil
	}
	code := program.ExitUnavailable
	if slices.ContainsFunc(unread, fleetreader.Denied) {
		code = program.ExitRefused
	}
	return &program.ExitError{Code: code, Err: errors.New("not all tables were read: whether anything is wrong with their content is unknown")}
}

// TellUnread logs why tables were not read.
func TellUnread(app *program.App, problems []string) {
	for _, problem := range problems {
		app.Logger().Info("tables were not read", slog.String("why", problem))
	}
}

// Primary returns an error if the server is a standby: its locks say nothing about the primary's.
func (v View) Primary() error {
	if !v.Server.Standby {
		return nil
	}
	return &program.ExitError{Code: program.ExitUnavailable, Err: errors.New(
		"this server is a standby, which does not have the primary's locks: point the connection string at the primary (target_session_attrs=primary)")}
}
