package middlewaretest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/middleware"
)

// Handle runs the Handler for a request of net/http that the router routed to id.
func (s Setup) Handle(w http.ResponseWriter, r *http.Request, id string) {
	text := s.Handler(Exchange{
		Context: r.Context(),
		ID:      id,
		Send: func(text string) error {
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
			return http.NewResponseController(w).Flush()
		},
		Hijack: func() (net.Conn, error) {
			conn, _, err := http.NewResponseController(w).Hijack()
			return conn, err
		},
	})
	if text != "" {
		_, _ = io.WriteString(w, text)
	}
}

// HTTP serves a router of net/http that answers /agents/{id} by Handle.
func (s Setup) HTTP(t *testing.T, router http.Handler) Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if value := recover(); value != nil {
				s.Panicked(value)
				panic(http.ErrAbortHandler)
			}
		}()
		router.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return HTTPServer(t, server.Listener.Addr().String())
}

// HTTPServer returns the clients of a server that speaks HTTP/1.1 at an address.
func HTTPServer(t *testing.T, address string) Server {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c := client{&http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, address}
	return Server{Call: c.call, Stream: c.stream, Address: address}
}

// A client sends requests of HTTP.
type client struct {
	*http.Client
	address string
}

func (c client) post(ctx context.Context, id string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.address+"/agents/"+url.PathEscape(id), nil)
	if err != nil {
		return nil, err
	}
	return c.Do(req)
}

func (c client) call(ctx context.Context, id string) (Answer, error) {
	resp, err := c.post(ctx, id)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	return read(resp)
}

func (c client) stream(ctx context.Context, id string) (func() (string, *Answer), error) {
	resp, err := c.post(ctx, id) //nolint:bodyclose // next does
	if err != nil {
		return nil, err
	}
	return func() (string, *Answer) {
		part := make([]byte, 100)
		n := 0
		if resp.StatusCode == http.StatusOK {
			n, err = resp.Body.Read(part)
		}
		if n > 0 {
			return string(part[:n]), nil
		}
		defer func() { _ = resp.Body.Close() }()
		answer, err := read(resp)
		if err != nil {
			answer.Text = err.Error()
		}
		return "", &answer
	}, nil
}

// read reads an answer to its end.
func read(resp *http.Response) (Answer, error) {
	body, err := io.ReadAll(resp.Body)
	a := Answer{Status: resp.StatusCode, Text: string(body)}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var p middleware.ProblemError
		if err := json.Unmarshal(body, &p); err != nil {
			return a, err
		}
		if p.Status != resp.StatusCode {
			return a, fmt.Errorf("the body says %d, the status %d", p.Status, resp.StatusCode)
		}
		a.Type = p.Type
		if p.Holder != nil {
			a.HolderPID = p.Holder.PID
		}
	}
	return a, err
}

// get asks for a path with GET.
func (s *suite) get(server Server, path string) (status int) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+server.Address+path, nil)
	require.NoError(s, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(s, err)
	assert.NoError(s, resp.Body.Close())
	return resp.StatusCode
}

// raw sends a path unchanged, and returns the status of the answer; 0 if the server hung up.
func (s *suite) raw(server Server, path string) int {
	s.Helper()
	conn, err := net.Dial("tcp", server.Address) //nolint:noctx // it is closed at the end
	require.NoError(s, err)
	defer func() { _ = conn.Close() }()
	require.NoError(s, conn.SetDeadline(time.Now().Add(s.f.Timeout)))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", path)
	require.NoError(s, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	assert.NoError(s, resp.Body.Close())
	return resp.StatusCode
}
