package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// The connections of one replica. A lock is held on one connection while the work under it
// runs on another. Two pools ensure that hooks waiting for locks never starve the holders
// of connections for their work.
const (
	WorkConns = 15
	LockConns = 10
)

// A Config configures an App. The zero value of every field but DSN is a good default.
type Config struct {
	// DSN is the PostgreSQL URL or keyword/value string. Required.
	DSN string

	// Replica names this process in logs and, as "agents/<replica>", in the list of locks.
	Replica string

	LockTimeout    time.Duration // how long a hook waits for its agent's lock; 0 = 15 s
	SessionTTL     time.Duration // after which a stopped or disconnected replica loses its locks; 0 = 15 s
	WorkerInterval time.Duration // between two cycles of a background worker; 0 = 5 s
	AgentTimeout   time.Duration // without a hook, after which the reaper ends an agent; 0 = 5 min

	// StopTries is how often the deferred stop checks for the agent's answer, and StopPause the pause between two
	// checks. 0 = 20 and 250 ms.
	StopTries int
	StopPause time.Duration

	// Transcripts has what the agents said, as <session_id>.txt: complete lines, one per answer. nil = nothing.
	// A session's id is untrusted input: use os.Root.FS, which reads nothing outside its directory.
	Transcripts fs.FS

	// ConfigPath is the JSON file that PATCH /api/config edits. "" = no such route.
	ConfigPath string

	// Tokens are the bearer tokens, of at least 16 bytes each. Every request needs one of them, for hooks and for
	// the list of locks alike. nil = only requests from this host are answered.
	Tokens []string

	// Model writes the summary of a text. nil = the first words.
	Model func(ctx context.Context, text string) (summary string, err error)

	// Skills returns the skills of an agent's persona. Every hook calls it until it returns some. The agent receives
	// them once, with that hook's answer. nil = no skills.
	Skills func(ctx context.Context, agent *Agent) (string, error)

	// Around, if not nil, is called under the agent's lock, and calls work, which does the hook.
	Around func(ctx context.Context, hook string, h *Hook, agent int32, work func() error) error

	// Logger receives the events of background work. nil = discard.
	Logger *slog.Logger
}

// An App is one replica of the program. Call Close when it is no longer needed.
type App struct {
	config      Config
	pool        *pgxpool.Pool
	locker      *advisory.Locker
	monitor     *monitor.Monitor
	broadcaster broadcaster
	sessions    sessionRegistry
	summaries   inferenceCache
	calls       *rate.Limiter // of the model
	tokens      tokenStore
	workers     []*worker
	echo        *echo.Echo

	lifetime   context.Context // ends with Close
	end        context.CancelFunc
	streaming  context.Context // ends when streams of events must end, at the latest with lifetime
	endStreams context.CancelFunc
	background sync.WaitGroup // deferred stops and summaries
}

// The kinds of things that the program locks. Never reuse a number for something else.
var (
	Agents = namespace.Must(1, "agent")  // by agents.id
	Schema = namespace.Must(2, "schema") // by the schema's version
)

// Open connects, creates missing tables, and returns an App that serves nothing yet: see Handler and Serve. ctx bounds
// only this call. Any number of replicas may open at once on one database.
func Open(ctx context.Context, config Config) (*App, error) {
	config.WorkerInterval = cmp.Or(config.WorkerInterval, 5*time.Second)
	config.AgentTimeout = cmp.Or(config.AgentTimeout, 5*time.Minute)
	config.StopTries = cmp.Or(config.StopTries, 20)
	config.StopPause = cmp.Or(config.StopPause, 250*time.Millisecond)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	if config.Model == nil {
		config.Model = firstWords
	}
	a := &App{config: config, calls: rate.NewLimiter(1, 60)}
	a.lifetime, a.end = context.WithCancel(context.Background())
	a.streaming, a.endStreams = context.WithCancel(a.lifetime)
	if err := a.open(ctx); err != nil {
		a.Close()
		return nil, fmt.Errorf("agents: %w", err)
	}
	return a, nil
}

// open acquires the resources that Close releases.
func (a *App) open(ctx context.Context) (err error) {
	if err := a.tokens.replace(a.config.Tokens); err != nil {
		return err
	}
	work, err := pgxpool.ParseConfig(a.config.DSN)
	if err != nil {
		return fmt.Errorf("DSN: %w", err)
	}
	name := "agents/" + a.config.Replica
	work.MaxConns = WorkConns
	work.ConnConfig.RuntimeParams["application_name"] = name + " work"
	if a.pool, err = pgxpool.NewWithConfig(ctx, work); err != nil {
		return fmt.Errorf("work pool: %w", err)
	}
	a.locker, err = advisory.Open(ctx, advisory.Config{
		DSN: a.config.DSN, MaxConns: LockConns, Wait: a.config.LockTimeout, SessionTTL: a.config.SessionTTL, ApplicationName: name, Logger: a.config.Logger,
	})
	if err != nil {
		return err
	}
	names, err := namespace.NewSet(Agents, Schema)
	if err != nil {
		return err
	}
	a.monitor, err = monitor.Open(monitor.Config{
		DSN: a.config.DSN, Namespaces: names, Logger: a.config.Logger,
		Authorize: monitor.AllowAll, // the program's tokens already protect all routes
	})
	if err != nil {
		return err
	}
	// Two sessions that run CREATE … IF NOT EXISTS at once can fail, so replicas take turns. They wait
	// for longer than a hook does.
	err = a.locker.With(advisory.Options{Wait: time.Minute}).Do(ctx, Schema.ID(1), func(ctx context.Context) error {
		_, err := a.pool.Exec(ctx, schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("create the schema: %w", err)
	}
	a.workers = []*worker{a.reaper(), a.reconciler(), a.contextPoller(), a.watchdog()}
	return a.routes()
}

// ReplaceTokens replaces the tokens of Config.Tokens from the next request on. On an error nothing changes. Replacing
// existing tokens with none is an error.
func (a *App) ReplaceTokens(tokens []string) error { return a.tokens.replace(tokens) }

// Close cancels background work, waits for it, and closes every connection. Requests must have ended.
func (a *App) Close() {
	a.end()
	a.background.Wait()
	if a.monitor != nil {
		a.monitor.Close()
	}
	if a.locker != nil {
		a.locker.Close()
	}
	if a.pool != nil {
		a.pool.Close()
	}
}

// later runs fn in the background until the App closes.
func (a *App) later(what string, fn func(ctx context.Context) error) {
	a.background.Go(func() {
		if err := fn(a.lifetime); err != nil && a.lifetime.Err() == nil {
			a.config.Logger.Warn("background_work_failed", slog.String("work", what), slog.Any("error", err))
		}
	})
}

// Serve answers requests on listener and runs the background workers until ctx ends. Then it waits at most 10 s for
// running requests. It closes listener.
func (a *App) Serve(ctx context.Context, listener net.Listener) error {
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range a.workers {
		running.Go(func() error { w.run(ctx, a.config.WorkerInterval); return nil })
	}
	server := &http.Server{Handler: a.Handler(), ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(a.endStreams) // Shutdown waits for them
	running.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	running.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return server.Shutdown(grace)
	})
	return running.Wait()
}
