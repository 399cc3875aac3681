package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// An App is one replica of the program. Call Close when it is no longer needed.
type App struct {
	config      Config
	pool        *pgxpool.Pool
	locker      *advisory.Locker
	monitor     *monitor.Monitor
	transcripts *transcripts
	broadcaster *Broadcaster
	sessions    *SessionRegistry
	tokens      TokenStore
	summariser  *Summariser
	injector    *Injector
	workers     []*Worker
	echo        *echo.Echo

	lifetime   context.Context // ends with Close
	end        context.CancelFunc
	background sync.WaitGroup // deferred stops and summaries
}

// Open connects, creates missing tables, and returns an App that serves nothing yet: see
// Handler, Work and Serve. ctx bounds only this call. Any number of replicas may open at
// once on one database.
func Open(ctx context.Context, config Config) (*App, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &App{config: config, broadcaster: NewBroadcaster(), sessions: NewSessionRegistry()}
	if err := a.tokens.Replace(config.Tokens); err != nil {
		return nil, err
	}
	a.lifetime, a.end = context.WithCancel(context.Background())
	if err := a.open(ctx); err != nil {
		a.Close()
		return nil, err
	}
	a.summariser = NewSummariser(a.pool, config.Model)
	a.injector = NewInjector(a.pool, config.Skills)
	a.workers = []*Worker{a.reaper(), a.reconciler(), a.contextPoller(), a.watchdog()}
	if a.echo, err = a.routes(); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// open acquires the resources that Close releases.
func (a *App) open(ctx context.Context) (err error) {
	if a.transcripts, err = openTranscripts(a.config.TranscriptDir); err != nil {
		return err
	}
	work, err := pgxpool.ParseConfig(a.config.DSN)
	if err != nil {
		return fmt.Errorf("agents: DSN: %w", err)
	}
	name := "agents/" + a.config.Replica
	work.MaxConns = WorkConns
	work.ConnConfig.RuntimeParams["application_name"] = name + " work"
	if a.pool, err = pgxpool.NewWithConfig(ctx, work); err != nil {
		return fmt.Errorf("agents: work pool: %w", err)
	}
	a.locker, err = advisory.Open(ctx, advisory.Config{
		DSN:             a.config.DSN,
		MaxConns:        LockConns,
		Wait:            a.config.LockTimeout,
		SessionTTL:      a.config.SessionTTL,
		ApplicationName: name,
		Logger:          a.config.Logger,
	})
	if err != nil {
		return err
	}
	names, err := Namespaces()
	if err != nil {
		return err
	}
	a.monitor, err = monitor.Open(monitor.Config{
		DSN: a.config.DSN, Namespaces: names, HeldSince: a.heldSince, Logger: a.config.Logger,
		Authorize: monitor.AllowAll, // the program's tokens already protect all routes
	})
	if err != nil {
		return err
	}
	return createSchema(ctx, a.locker, a.pool)
}

// heldSince returns, for the monitor, since when this process has held the lock.
func (a *App) heldSince(pid uint32, tag namespace.Tag) (time.Time, bool) {
	for lock := range a.locker.Held() {
		if lock.PID == pid && slices.ContainsFunc(lock.Keys, func(key namespace.Key) bool { return key.Tag() == tag }) {
			return lock.Since, true
		}
	}
	return time.Time{}, false
}

// Locker returns the App's Locker, for anything else that the program guards with locks.
func (a *App) Locker() *advisory.Locker { return a.locker }

// ReplaceTokens replaces the tokens of Config.Tokens from the next request on. On an error
// nothing changes. Replacing existing tokens with none is an error.
func (a *App) ReplaceTokens(tokens []string) error { return a.tokens.Replace(tokens) }

// Close cancels background work, waits for it, and closes every connection. Requests must
// have ended.
func (a *App) Close() {
	a.end()
	a.background.Wait()
	a.broadcaster.Close()
	if a.monitor != nil {
		a.monitor.Close()
	}
	if a.locker != nil {
		a.locker.Close()
	}
	if a.pool != nil {
		a.pool.Close()
	}
	_ = a.transcripts.close() // it was only read from
}

// later runs fn in the background until the App closes.
func (a *App) later(what string, fn func(ctx context.Context) error) {
	a.background.Go(func() {
		if err := fn(a.lifetime); err != nil && a.lifetime.Err() == nil {
			a.config.Logger.Warn("background_work_failed", slog.String("work", what), slog.Any("error", err))
		}
	})
}

// summarise starts writing the summaries of committed turns, one after the other: each
// occupies a connection of the work pool during its model call.
func (a *App) summarise(turns []int64) {
	if len(turns) == 0 {
		return
	}
	a.later("summary", func(ctx context.Context) error {
		var failed []error
		for _, turn := range turns {
			_, _, err := a.summariser.Summarise(ctx, turn)
			failed = append(failed, err)
		}
		return errors.Join(failed...)
	})
}
