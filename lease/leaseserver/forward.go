package leaseserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/bearer"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// anywhere answers a client's request at the active server, or by next if that cannot be reached. A
// request that waits moves to another server when that becomes active.
func (s *Server) anywhere(w http.ResponseWriter, r *http.Request, next handler) error {
	target, _ := s.forwarder.direction()
	wait, waits := waitOf(r.URL.RawQuery)
	if target.url == "" && !waits {
		return next(w, r)
	}
	t, err := s.newTransit(w, r, min(wait, s.MaxWait))
	if err != nil {
		return err
	}
	for forwards := true; ; forwards = waits {
		target, until := s.forwarder.direction()
		if target.url == "" || !forwards {
			err := t.here(until, next)
			if errors.Is(err, errMoved) && r.Context().Err() == nil {
				continue
			}
			return err
		}
		a, err := t.there(target)
		switch {
		case err == nil:
			s.metrics.forwarded.Inc()
			return a.relay(w)
		case r.Context().Err() != nil:
			return context.Cause(r.Context())
		case errors.Is(err, errClosing), // the outcome is unknown
			errors.Is(err, errHeaders): // the active server did not fail
			return err
		}
		s.metrics.unforwarded.Inc()
		if until.Err() == nil { // or somebody has noticed
			s.forwarder.fail(target)
		}
		if !errors.Is(err, errNotActive) && r.Method == http.MethodPost {
			return err // the outcome is unknown
		}
	}
}

// A transit is a client's request on its way to an answer.
type transit struct {
	*Server
	w       http.ResponseWriter
	request *http.Request // as the client sent it
	body    []byte
	start   time.Time
	wait    time.Duration // 0 = it does not wait
}

func (s *Server) newTransit(w http.ResponseWriter, r *http.Request, wait time.Duration) (*transit, error) {
	t := &transit{Server: s, w: w, request: r, start: time.Now(), wait: wait}
	if r.Method == http.MethodPost {
		var body bytes.Buffer
		if err := s.fill(&body, r); err != nil {
			return nil, err
		}
		t.body = body.Bytes()
	}
	if r.Method == http.MethodPost || r.ContentLength == 0 { // the timeout of reading the request would end it
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	return t, nil
}

// waitOf returns the time of a request that waits. A wrong one is refused by the server that
// answers.
func waitOf(rawQuery string) (time.Duration, bool) {
	if rawQuery == "" {
		return 0, false
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil || len(query["wait"]) != 1 {
		return 0, false
	}
	wait, err := time.ParseDuration(query.Get("wait"))
	if err != nil || wait <= 0 {
		return 0, false
	}
	return wait, true
}

// left returns the query with the time that is left to wait.
func (t *transit) left() string {
	if t.wait == 0 {
		return t.request.URL.RawQuery
	}
	query := t.request.URL.Query()
	query.Set("wait", max(t.wait-time.Since(t.start), 0).String())
	return query.Encode()
}

// here answers by this server.
func (t *transit) here(until context.Context, next handler) error {
	if t.wait == 0 {
		until = context.Background()
	}
	ctx, cancel := whileBoth(t.request.Context(), until)
	defer cancel()
	c := callerOf(t.request)
	c.waited += time.Since(t.start)
	r := t.request.WithContext(c.in(ctx))
	u := *t.request.URL
	r.URL, u.RawQuery = &u, t.left()
	if t.request.Method == http.MethodPost {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(t.body)), int64(len(t.body))
	}
	return next(t.w, r)
}

// A forwardedAnswer is what the active server said.
type forwardedAnswer struct {
	status int
	header http.Header
	body   []byte
}

// there sends the request to the active server. After an error that matches errNotActive, nothing was
// done. After any other error the outcome is unknown: the active server can be stopped, and carry the
// request out when it continues.
func (t *transit) there(target place) (*forwardedAnswer, error) {
	base, err := baseURL(target.url)
	if err != nil {
		return nil, errors.Join(errNotActive, err)
	}
	sent := false
	traced := httptrace.WithClientTrace(t.request.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent = true },
		GetConn: func(string) { sent = false }, // again, because the server that shuts down said that it has not looked at the request
	})
	bounded, stop := context.WithTimeout(traced, t.forwardTime(max(t.wait-time.Since(t.start), 0)))
	defer stop()
	if t.wait > 0 {
		var end func()
		bounded, end = endedBy(bounded, t.queue.closing, errClosing)
		defer end()
	}
	u := *t.request.URL
	u.Scheme, u.Host, u.RawQuery = base.Scheme, base.Host, t.left()
	if u.RawPath != "" && u.RawPath != u.EscapedPath() { // a name with an escaped slash and another character unescaped
		u.RawPath = strings.Replace(routePath(t.request), "{lock}", url.PathEscape(t.request.PathValue(paramLock)), 1)
	}
	r := (&http.Request{Method: t.request.Method, URL: &u, Header: t.headers(target), Host: base.Host}).WithContext(bounded)
	if headerSize(r) > maxHeader {
		return nil, errHeaders
	}
	if t.request.Method == http.MethodPost {
		// The transport sends the body again only if the active server says that it has not looked at the request.
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(t.body)), nil }
		r.Body, _ = r.GetBody()
		r.ContentLength = int64(len(t.body))
	}
	response, err := t.forwarder.transport.Load().RoundTrip(r)
	switch {
	case err != nil && errors.Is(context.Cause(bounded), errClosing):
		return nil, errClosing
	case err != nil && !sent:
		return nil, fmt.Errorf("%w: %w", errNotActive, err)
	case err != nil:
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, err
	case response.StatusCode == http.StatusMisdirectedRequest:
		return nil, errNotActive
	}
	return &forwardedAnswer{response.StatusCode, response.Header, body}, nil
}

// headers returns those of the client's request, without those that are for one connection, and
// with those of this server.
func (t *transit) headers(to place) http.Header {
	h := t.request.Header.Clone()
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for _, name := range [...]string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Expect", "Content-Length", hopHeader, peerHeader, certificateHeader, waitedHeader, processHeader,
		"Idempotency-Key", "X-Idempotency-Key", // with these, net/http would repeat a request whose outcome is unknown
	} {
		h.Del(name)
	}
	t.forwarder.sign(h, to, clientAddress(t.request))
	h.Set(waitedHeader, strconv.FormatInt(time.Since(t.start).Milliseconds(), 10))
	if leaf := bearer.Leaf(t.request.TLS); leaf != nil {
		h.Set(certificateHeader, base64.StdEncoding.EncodeToString(leaf.Raw))
	}
	return h
}

// maxHeader is the maximum size of the headers of a request. HTTP/2 counts fieldOverhead for each of them,
// in addition to its name and value.
const (
	maxHeader     = 16 << 10
	fieldOverhead = 32
)

// errHeaders refuses a request that HTTP/2 would not send to the active server: nothing was done.
var errHeaders = wire.Refuse(wire.TypeInvalid, "the headers are too large to forward the request to the active server")

// headerSize returns the size of the headers of a request in HTTP/2, where its first line is four headers.
func headerSize(r *http.Request) int {
	size := len(":method:scheme:authority:path") + 4*fieldOverhead + len(r.Method) + len(r.URL.Scheme) + len(r.Host) + len(r.URL.RequestURI())
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value) + fieldOverhead
		}
	}
	return size
}

// relay answers the client.
func (a *forwardedAnswer) relay(to http.ResponseWriter) error {
	for name, values := range a.header {
		switch name {
		case "Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "Trailer", "Date":
			continue
		}
		to.Header()[name] = values
	}
	to.WriteHeader(a.status)
	_, _ = to.Write(a.body) // it fails only with the connection
	return nil
}

// forwardedHere answers a request that another server has forwarded. A server that is not active,
// or shuts down, sends it back.
func (s *Server) forwardedHere(w http.ResponseWriter, r *http.Request, next handler) error {
	term, active := s.forwarder.lead()
	if !active || s.draining.Load() {
		return refuseHop("this server is not active")
	}
	ctx, cancel := whileBoth(r.Context(), term)
	defer cancel()
	err := next(w, r.WithContext(ctx))
	if errors.Is(err, errMoved) || errors.Is(err, errClosing) {
		return refuseHop("this server is not active any more")
	}
	return err
}
