package demokit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// OpenDatabase creates a database for the demo, on the server that the environment names, or else on a server that
// it starts.
func (d *Demo) OpenDatabase() error {
	d.Say("looking for a PostgreSQL (if there is none on this machine, one is downloaded)")
	d.Defer(pgtest.Close)
	dsn, err := pgtest.Open(d)
	if err != nil {
		return err
	}
	d.Database = dbtest.Open(d, dsn)
	config := d.Pool.Config().ConnConfig
	d.Say("PostgreSQL %s on %s:%d, database %s", dbtest.Ask[string](d, `SHOW server_version`), config.Host, config.Port, config.Database)
	return nil
}

// Now returns the time by PostgreSQL's clock.
func (d *Demo) Now() time.Time { return dbtest.Ask[time.Time](d, `SELECT clock_timestamp()`) }

// Serve serves a handler on a loopback address until the demo ends.
func (d *Demo) Serve(handler http.Handler) (url string) {
	server := httptest.NewServer(handler)
	d.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
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
