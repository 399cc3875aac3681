package demokit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// OpenDatabase creates a database for the demo, on the server that the environment names, or else on a server that
// it starts.
func (d *Demo) OpenDatabase(ctx context.Context) (err error) {
	d.Say("looking for a PostgreSQL (if there is none on this machine, one is downloaded)")
	admin := cmp.Or(os.Getenv("PGLATCH_TEST_DATABASE_URL"), os.Getenv("TEST_DATABASE_URL"))
	if admin == "" {
		server, err := pgserver.Start(ctx, pgserver.Options{})
		if err != nil {
			return err
		}
		d.Defer(server.Close)
		admin = server.DSN("")
	}
	if d.DSN, err = pgserver.CreateDatabase(ctx, admin); err != nil {
		return err
	}
	d.Defer(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return pgserver.DropDatabase(ctx, admin, d.DSN)
	})
	if d.Pool, err = pgxpool.New(ctx, d.DSN); err != nil {
		return err
	}
	d.Defer(func() error { d.Pool.Close(); return nil })
	config := d.Pool.Config().ConnConfig
	d.Say("PostgreSQL %s on %s:%d, database %s", One[string](ctx, d, `SHOW server_version`), config.Host, config.Port, config.Database)
	return nil
}

// One returns a query's only value or row.
func One[T any](ctx context.Context, d *Demo, sql string, args ...any) T {
	rows, _ := d.Pool.Query(ctx, sql, args...) // rows carries the error
	return Must(pgx.CollectExactlyOneRow(rows, pgx.RowTo[T]))
}

// Exec runs a statement.
func (d *Demo) Exec(ctx context.Context, sql string, args ...any) {
	Must(d.Pool.Exec(ctx, sql, args...))
}

// Now returns the time by PostgreSQL's clock.
func (d *Demo) Now(ctx context.Context) time.Time {
	return One[time.Time](ctx, d, `SELECT clock_timestamp()`)
}

// Serve runs serve on a loopback address until the demo ends.
func (d *Demo) Serve(ctx context.Context, serve func(context.Context, net.Listener) error) (url string) {
	listener := Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener) }()
	d.Defer(func() error { stop(); return <-ended })
	return fmt.Sprintf("http://%s", listener.Addr())
}

// ServeHTTP is Serve with a handler.
func (d *Demo) ServeHTTP(ctx context.Context, handler http.Handler) (url string) {
	return d.Serve(ctx, func(ctx context.Context, listener net.Listener) error {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: Patience}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// An Answer is the response to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Took   time.Duration
	Err    error
}

// Do sends a request with a JSON body and with these headers, as "Name: value". It fails only its Answer.
func Do(ctx context.Context, method, url string, body any, headers ...string) (a Answer) {
	began := time.Now()
	defer func() { a.Took = time.Since(began) }()
	text, err := json.Marshal(body)
	if err != nil {
		return Answer{Err: err}
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(text))
	if err != nil {
		return Answer{Err: err}
	}
	request.Close = true // leaves no connection behind
	request.Header.Set("Content-Type", "application/json")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if request.Header.Set(name, value); name == "Host" {
			request.Host = value
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Answer{Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	return Answer{Status: response.StatusCode, Header: response.Header, Body: string(read), Err: err}
}

// Decode reads the body of an Answer.
func (a Answer) Decode(into any) {
	Check(a.Err)
	if err := json.Unmarshal([]byte(a.Body), into); err != nil {
		Check(fmt.Errorf("%d %s: %w", a.Status, a.Body, err))
	}
}
