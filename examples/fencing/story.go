package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// A story is the state that the four scenes share.
type story struct {
	*demokit.Narrator
	httpOnly bool

	database *demokit.Database // nil = without PostgreSQL
	inSQLite *leasehttp.Client // of the lock server on SQLite
	inTables *leasehttp.Client // of the lock server on PostgreSQL
	servers  map[*leasehttp.Client]string
	ends     []func() error // called by Close, the last first
}

// Title implements demokit.Story, as the methods below do.
func (s *story) Title() string { return "fencing: a writer is paused past its lease, and writes" }

// Open starts the lock servers.
func (s *story) Open(ctx context.Context) error {
	s.servers = make(map[*leasehttp.Client]string)
	dir, err := os.MkdirTemp("", "fencing-")
	if err != nil {
		return err
	}
	s.ends = append(s.ends, func() error { return os.RemoveAll(dir) })
	store, err := sqlite.Open(ctx, filepath.Join(dir, "locks.db"), sqlite.Config{})
	if err != nil {
		return err
	}
	s.ends = append(s.ends, store.Close)
	if s.inSQLite, err = s.serveLocks(ctx, store); err != nil {
		return err
	}
	s.Say("a lock server on SQLite listens at %s", s.servers[s.inSQLite])
	if s.httpOnly {
		return nil
	}
	if s.database, err = demokit.OpenDatabase(ctx, s.Narrator); err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.Say("no PostgreSQL, so its two scenes are left out: %v", err)
		s.database = nil
		return nil
	}
	return s.openPostgres(ctx)
}

func (s *story) openPostgres(ctx context.Context) error {
	if _, err := s.database.Pool.Exec(ctx, schema); err != nil {
		return err
	}
	store, err := postgres.New(postgres.Config{Pool: s.database.Pool})
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if s.inTables, err = s.serveLocks(ctx, store); err != nil {
		return err
	}
	s.Say("a lock server on PostgreSQL listens at %s", s.servers[s.inTables])
	return nil
}

// serveLocks starts a lock server in this process and returns a client of it.
func (s *story) serveLocks(ctx context.Context, store lease.Store) (*leasehttp.Client, error) {
	server, err := leaseserver.New(leaseserver.Config{Store: store})
	if err != nil {
		return nil, err
	}
	url, err := s.listen(ctx, server.Serve)
	if err != nil {
		return nil, err
	}
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{url}})
	if err != nil {
		return nil, err
	}
	s.servers[client] = url
	s.ends = append(s.ends, func() error {
		client.Close()
		return nil
	})
	return client, nil
}

// serveDocument starts a document behind HTTP.
func (s *story) serveDocument(ctx context.Context, fencing bool) (webResource, error) {
	server := &http.Server{Handler: &document{fencing: fencing}, ReadHeaderTimeout: demokit.Patience}
	url, err := s.listen(ctx, func(ctx context.Context, listener net.Listener) error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return webResource{url + "/document"}, err
}

// listen runs serve on a loopback address until Close.
func (s *story) listen(ctx context.Context, serve func(context.Context, net.Listener) error) (url string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- serve(serving, listener) }()
	s.ends = append(s.ends, func() error {
		stop()
		return <-ended
	})
	return fmt.Sprintf("http://%s", listener.Addr()), nil
}

// Scenes returns the four scenes.
func (s *story) Scenes() []demokit.Scene {
	web := func(fencing bool) func(context.Context) error {
		return func(ctx context.Context) error {
			target, err := s.serveDocument(ctx, fencing)
			if err != nil {
				return err
			}
			return s.pause(ctx, s.inSQLite, target, fencing, documentVariable+"="+target.url)
		}
	}
	table := func(guarded bool) func(context.Context) error {
		return func(ctx context.Context) error {
			if s.database == nil {
				s.Say("left out: no PostgreSQL")
				return nil
			}
			env := []string{databaseVariable + "=" + s.database.DSN}
			if guarded {
				env = append(env, guardedVariable+"=yes")
			}
			conn, err := pgx.Connect(ctx, s.database.DSN)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
			return s.pause(ctx, s.inTables, tableResource{conn, guarded}, guarded, env...)
		}
	}
	return []demokit.Scene{
		{Title: "HTTP, a resource without fencing: the failure", Play: web(false)},
		{Title: "HTTP, a resource that refuses lower tokens", Play: web(true)},
		{Title: "PostgreSQL, writes without Guard: the failure", Play: table(false)},
		{Title: "PostgreSQL, writes with Guard", Play: table(true)},
	}
}

// Logs returns nothing: everything has been printed.
func (s *story) Logs() string { return "" }

// Stay returns at once: everything has been shown.
func (s *story) Stay(context.Context) {}

// Close ends what Open and the scenes started.
func (s *story) Close() (err error) {
	for _, end := range slices.Backward(s.ends) {
		err = errors.Join(err, end())
	}
	if s.database != nil {
		err = errors.Join(err, s.database.Close())
	}
	return err
}
