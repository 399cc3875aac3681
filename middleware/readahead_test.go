package middleware_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// send opens a connection and sends a request as text.
func send(t *testing.T, server *httptest.Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	return conn
}

func withBody(body string) string {
	return fmt.Sprintf("POST /agents/42 HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestTheHandlerDoesNotRunForAClientThatSentABodyAndLeft(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		for _, ahead := range []int{0, -1} {
			t.Run(fmt.Sprint(name, " ReadAhead ", ahead), func(t *testing.T) {
				t.Parallel()
				waiting := make(waits, 1)
				l := open(t, advisory.Config{DSN: pgtest.DSN(t), Tracer: waiting.tracer()})
				lock := hold(t, l, agents.ID(42))
				served := make(chan struct{}, 1)
				c := byPath(l)
				c.ReadAhead = ahead
				ends := make(chan any, 1)
				h := build(t, c, func(http.ResponseWriter, *http.Request) { served <- struct{}{} })
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						p := recover()
						ends <- p
						if p != nil {
							panic(p)
						}
					}()
					h.ServeHTTP(w, r)
				}))
				defer server.Close()
				conn := send(t, server, withBody(`{"a":1}`))
				receive(t, waiting)
				require.NoError(t, conn.Close())
				if ahead < 0 { // control: the server does not notice
					require.NoError(t, lock.Release())
					receive(t, served)
					assert.Nil(t, receive(t, ends))
					return
				}
				assert.Equal(t, http.ErrAbortHandler, receive(t, ends), "while the lock is held")
				require.NoError(t, lock.Release())
				assert.Empty(t, served)
			})
		}
	}
}

func TestABodyThatEndsTooEarlyGetsNoLock(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, advisory.Config{DSN: pgtest.DSN(t)})
			server := httptest.NewServer(build(t, byPath(l), func(http.ResponseWriter, *http.Request) { assert.Fail(t, "it runs") }))
			defer server.Close()
			conn := send(t, server, strings.TrimSuffix(withBody(`{"a":1}`), "1}"))
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			answer, err := io.ReadAll(conn)
			require.NoError(t, err)
			assert.Empty(t, string(answer), "as for a client that has gone")
			assert.Zero(t, l.Stats().Acquired)
		})
	}
}

// bodies are sent by a client in any way that HTTP knows. The handler gets them
// unchanged, with and without a wait.
func TestTheHandlerGetsTheBodyAsItWasSent(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("0123456789", 1<<17)
	requests := map[string]func(url string) *http.Request{
		"short":          func(url string) *http.Request { return bodyRequest(url, strings.NewReader("short")) },
		"as long as may": func(url string) *http.Request { return bodyRequest(url, strings.NewReader(huge[:64<<10])) },
		"longer by one":  func(url string) *http.Request { return bodyRequest(url, strings.NewReader(huge[:64<<10+1])) },
		"huge":           func(url string) *http.Request { return bodyRequest(url, strings.NewReader(huge)) },
		"none":           func(url string) *http.Request { return bodyRequest(url, nil) },
		"chunked, with a trailer": func(url string) *http.Request {
			r := bodyRequest(url, io.MultiReader(strings.NewReader("in "), strings.NewReader("pieces")))
			r.Trailer = http.Header{"X-Sum": {"9"}}
			return r
		},
		"100-continue": func(url string) *http.Request {
			r := bodyRequest(url, strings.NewReader("held back"))
			r.Header.Set("Expect", "100-continue")
			return r
		},
	}
	for name, build := range stacks {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " HTTP/2 ", http2), func(t *testing.T) {
				t.Parallel()
				waiting := make(waits, 1)
				l := open(t, advisory.Config{DSN: pgtest.DSN(t), Tracer: waiting.tracer()})
				var got atomic.Pointer[http.Request]
				var text atomic.Value
				server := httptest.NewUnstartedServer(build(t, byPath(l), func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					assert.NoError(t, r.Body.Close())
					if len(body) > 0 {
						_, err = r.Body.Read(make([]byte, 1))
						assert.Error(t, err, "after Close")
					}
					text.Store(string(body))
					got.Store(r)
				}))
				server.EnableHTTP2 = http2
				server.StartTLS()
				defer server.Close()
				for name, request := range requests {
					for _, wait := range []bool{false, true} {
						r := request(server.URL + "/agents/42")
						var want []byte
						if r.Body != nil {
							var err error
							want, err = io.ReadAll(r.Body)
							require.NoError(t, err)
							r.Body = io.NopCloser(bytes.NewReader(want))
						}
						status := make(chan int, 1)
						call := func() {
							resp, err := server.Client().Do(r)
							if assert.NoError(t, err) {
								resp.Body.Close()
								status <- resp.StatusCode
							}
						}
						if wait {
							lock := hold(t, l, agents.ID(42))
							go call()
							receive(t, waiting)
							require.NoError(t, lock.Release())
						} else {
							go call()
						}
						require.Equal(t, http.StatusOK, receive(t, status), name)
						require.Equal(t, string(want), text.Load(), name)
						if r.Trailer != nil {
							require.Equal(t, "9", got.Load().Trailer.Get("X-Sum"), name)
						}
					}
				}
			})
		}
	}
}

func bodyRequest(url string, body io.Reader) *http.Request {
	r, err := http.NewRequest(http.MethodPost, url, body)
	if err != nil {
		panic(err)
	}
	return r
}

// brokenBody fails after some text.
type brokenBody struct{ io.Reader }

var errBroken = errors.New("broken")

func (brokenBody) Close() error { return nil }

func TestTheHandlerGetsTheErrorsOfTheBody(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []byte
			var err error
			h := build(t, byPath(open(t, advisory.Config{DSN: pgtest.DSN(t)})), func(_ http.ResponseWriter, r *http.Request) {
				got, err = io.ReadAll(r.Body)
			})
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/agents/42", strings.NewReader("0123456789"))
			r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 5)
			h.ServeHTTP(httptest.NewRecorder(), r)
			var tooLong *http.MaxBytesError
			require.ErrorAs(t, err, &tooLong)
			require.Equal(t, "01234", string(got))

			r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/agents/42", strings.NewReader("0123456789"))
			r.Body = brokenBody{io.MultiReader(strings.NewReader("some"), errReader{})}
			h.ServeHTTP(httptest.NewRecorder(), r)
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, "some", string(got))
		})
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errBroken }

// A handler can answer a body of unknown length before its end.
func TestAHandlerTalksWithAClientThatSendsItsBodyBitByBit(t *testing.T) {
	t.Parallel()
	l := open(t, advisory.Config{DSN: pgtest.DSN(t)})
	server := httptest.NewServer(stacks["net_http"](t, byPath(l), func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		assert.NoError(t, c.EnableFullDuplex())
		var b [1]byte
		for {
			if _, err := io.ReadFull(r.Body, b[:]); err != nil {
				return
			}
			_, _ = w.Write(b[:])
			assert.NoError(t, c.Flush())
		}
	}))
	defer server.Close()
	reader, writer := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/agents/42", reader)
	require.NoError(t, err)
	go func() { _, _ = writer.Write([]byte("a")) }()
	resp, err := server.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	for _, sent := range "abc" {
		if sent != 'a' {
			_, err := writer.Write([]byte(string(sent)))
			require.NoError(t, err)
		}
		var got [1]byte
		_, err := io.ReadFull(resp.Body, got[:])
		require.NoError(t, err)
		require.Equal(t, string(sent), string(got[:]))
	}
	require.NoError(t, writer.Close())
}
