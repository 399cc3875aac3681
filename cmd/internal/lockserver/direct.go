package lockserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/postgres"
)

// Direct returns a client of the leases in the store of app's database, without a lock server: its requests have the
// rules and the log lines of one, but no network. It makes no tables. The caller calls closeAll after the last request.
func Direct(ctx context.Context, app *program.App) (client *leasehttp.Client, closeAll func(), err error) {
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, nil, err
	}
	store, pool, err := openStore(ctx, cc, 1)
	if err != nil {
		return nil, nil, err
	}
	token := rand.Text()
	server, err := leaseserver.New(leaseserver.Config{
		Store: store, Tokens: []leaseserver.Token{{Secret: token, Right: leaseserver.Admin, Name: "database role " + cc.User}}, Logger: app.Logger(),
	})
	if err == nil {
		client, err = leasehttp.NewClient(leasehttp.ClientConfig{
			BaseURLs: []string{"http://127.0.0.1"}, Token: token, HTTPClient: &http.Client{Transport: inProcess{server.Handler()}}, Logger: app.Logger(),
		})
	}
	if err != nil {
		pool.Close()
		return nil, nil, program.UsageError("%w", err)
	}
	return client, func() { client.Close(); pool.Close() }, nil
}

// openStore opens the store in the database of cc.
func openStore(ctx context.Context, cc *pgx.ConnConfig, maxConns int32) (*postgres.Store, *pgxpool.Pool, error) {
	pool, err := program.NewPool(ctx, cc, maxConns)
	if err != nil {
		return nil, nil, err
	}
	store, err := postgres.New(postgres.Config{Pool: pool})
	if err != nil {
		pool.Close()
		return nil, nil, program.Unavailable(ctx, err)
	}
	return store, pool, nil
}

// An inProcess transport calls a server's handler.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "this process"
	var err error
	if served.URL, err = url.ParseRequestURI(served.RequestURI); err != nil { // a server reads it like this
		return nil, err
	}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	w := &answer{header: http.Header{}, status: http.StatusOK}
	t.handler.ServeHTTP(w, served)
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// An answer is the answer of a handler.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
