package leasehttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A transport sends requests to one server.
type transport struct {
	http.Client

	own    *http.Transport // of Client; nil = the caller's HTTPClient
	base   string          // scheme, host and path
	header http.Header
	prefix string        // of request ids
	sent   atomic.Uint64 // requests

	lines [lineKinds]*line // that share requests; none for noLine
}

// An answer is a server's response.
type answer struct {
	status      int
	contentType string
	body        []byte
	sent        lease.Moment // from before the request was sent
}

var (
	errNoAnswer = errors.New("no answer in time")
	errTooLong  = errors.New("lock server: the answer is too long")
	errMixedUp  = errors.New("leasehttp: the answer is that to another request: something on the way mixes them up")
)

const (
	// maxAnswer bounds the bytes that the client reads. A page of 1,000 locks with all their
	// metadata is smaller.
	maxAnswer = 32 << 20

	maxIdleConns = 1024
	maxIdleTime  = time.Minute // shorter than the server's limit
)

func newTransport(c *ClientConfig, base *url.URL) *transport {
	t := &transport{base: base.Scheme + "://" + base.Host + strings.TrimRight(base.EscapedPath(), "/"), prefix: rand.Text()[:8] + "-"}
	t.header = http.Header{"Content-Type": {wire.JSONType}, "User-Agent": {"pglatch"}}
	if c.Token != "" {
		t.header.Set("Authorization", "Bearer "+c.Token)
	}
	if c.HTTPClient != nil {
		t.Client = *c.HTTPClient
	} else {
		t.own = newConnections(c.TLS)
		if base.Scheme == schemeUnix {
			t.base, t.own.Proxy, t.own.DialContext = "http://localhost", nil, dialing(base.Path)
		}
		t.Transport = t.own
	}
	if t.CheckRedirect == nil { // BaseURLs says where claims may be sent
		t.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return t
}

// newConnections speaks only HTTP/1.1. A sending that gets no answer in time closes its connection,
// so that the next sending uses another one.
func newConnections(config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: DefaultTimeout}).DialContext,
		MaxIdleConns:           maxIdleConns,
		MaxIdleConnsPerHost:    maxIdleConns,
		IdleConnTimeout:        maxIdleTime,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    DefaultTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}

// dialing connects to a Unix socket, whatever the address.
func dialing(path string) func(context.Context, string, string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: DefaultTimeout}
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, schemeUnix, path)
	}
}

// send sends a request once. target is its path below the base, and its query. send returns the
// answer within timeout, or an error.
func (t *transport) send(ctx context.Context, method, target string, body []byte, timeout time.Duration) (answer, error) {
	if err := context.Cause(ctx); err != nil {
		return answer{}, err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	defer cancel()
	sent := lease.Now()
	a, err := t.exchange(bounded, method, target, body)
	a.sent = sent
	if err == nil {
		return a, nil
	}
	if t.own != nil && ctx.Err() == nil { // idle connections take the same path
		t.own.CloseIdleConnections()
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if cause := context.Cause(bounded); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return answer{}, err
}

func (t *transport) exchange(ctx context.Context, method, target string, body []byte) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, t.base+target, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	id := t.prefix + strconv.FormatUint(t.sent.Add(1), 10)
	r.Header = maps.Clone(t.header)
	r.Header[wire.RequestID] = []string{id}
	response, err := t.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if cmp.Or(response.Header.Get(wire.RequestID), id) != id {
		return answer{}, errMixedUp
	}
	return readAnswer(response)
}

func readAnswer(response *http.Response) (answer, error) {
	if response.ContentLength > maxAnswer {
		return answer{}, errTooLong
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = errTooLong
	}
	return answer{status: response.StatusCode, contentType: response.Header.Get("Content-Type"), body: data}, err
}
