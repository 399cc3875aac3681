package loadcmd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// server returns a client for the server under load, and a function to call at the end.
func (l *loadCommand) server(ctx context.Context, app *program.App) (*leasehttp.Client, func() error, error) {
	if len(l.URLs) == 0 && (l.Store != "" || os.Getenv("PGLATCH_LOCK_SERVER") == "") {
		return l.serve(ctx, app)
	}
	l.Resends = -1 // if a killed server has done a release, the resent one is stale
	client, err := l.Client(app, 0)
	if err != nil {
		return nil, nil, err
	}
	return client, func() error {
		client.Close()
		return nil
	}, nil
}

// serve starts a server in this process.
func (l *loadCommand) serve(ctx context.Context, app *program.App) (_ *leasehttp.Client, _ func() error, err error) {
	file, remove, err := temporaryFile()
	if err != nil {
		return nil, nil, &program.ExitError{Code: program.ExitInternal, Err: err}
	}
	ends := []func() error{remove}
	end := func() (err error) {
		for _, f := range slices.Backward(ends) {
			err = errors.Join(err, f())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	opened, err := l.Open(ctx, app, file)
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, opened.Close)
	server, err := leaseserver.New(leaseserver.Config{Store: opened.Store})
	if err != nil {
		return nil, nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(serving, listener) }()
	ends = append(ends, func() error {
		stop()
		return <-ended
	})
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + listener.Addr().String()}})
	if err != nil {
		return nil, nil, err
	}
	ends = append(ends, func() error {
		client.Close()
		return nil
	})
	return client, end, nil
}

// temporaryFile returns a SQLite file, and a function that removes it.
func temporaryFile() (file string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "pglatch-load-")
	return filepath.Join(dir, "locks.db"), func() error { return os.RemoveAll(dir) }, err
}
