package leaseserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// A forwarder decides where the requests of this server are answered: at the active server as long
// as its probes, one a second, are answered, otherwise here.
type forwarder struct {
	peers     Peers
	transport atomic.Pointer[peerTransport]

	recognized *peerTransport // by which the active server was recognized last; only run uses it

	metrics *metrics
	logger  *slog.Logger
	failed  chan struct{} // of size one: a request could not be forwarded, or the transport was replaced

	mu     sync.Mutex
	target place           // the active server; the zero value = this server answers
	until  context.Context // ends with the next change of target
	move   context.CancelFunc
	active bool            // this server is active
	term   context.Context // ends when it is not active any more; nil = it never was
	lose   context.CancelFunc
}

// A place is where requests are answered: by a process at a base URL.
type place struct {
	url     string
	process string // "" = any process there
}

const (
	aliveEvery   = time.Second
	aliveWithin  = 2 * time.Second // the time for an answer
	tryEvery     = 200 * time.Millisecond
	manyAtOnce   = 1000 // requests on one connection that do not wait
	activeRoute  = "/v1/active"
	mostIdleTime = time.Minute
)

func newForwarder(c *Config, m *metrics) *forwarder {
	if c.Peers.Election == nil {
		return nil
	}
	f := &forwarder{
		peers: c.Peers, metrics: m, logger: c.Logger, failed: make(chan struct{}, 1),
	}
	f.transport.Store(newPeerTransport(c.Peers.TLS))
	f.until, f.move = context.WithCancel(context.Background())
	return f
}

// A peerTransport connects to the active server.
type peerTransport struct {
	*http.Transport

	vouched bool // the certificates of the active server come from the authorities of Peers.TLS
}

func newPeerTransport(c *tls.Config) *peerTransport {
	return &peerTransport{&http.Transport{
		Protocols: protocols(false), TLSClientConfig: c.Clone(), TLSHandshakeTimeout: aliveWithin,
		DialContext: (&net.Dialer{Timeout: aliveWithin}).DialContext, IdleConnTimeout: mostIdleTime, DisableCompression: true,
		HTTP2: &http.HTTP2Config{SendPingTimeout: aliveEvery, PingTimeout: aliveWithin},
	}, c != nil && c.RootCAs != nil}
}

// SetPeerTLS replaces Config.Peers.TLS. Requests that are being forwarded keep their connection, and
// later requests use a new one. For a server without an Election, it returns an error and changes
// nothing.
func (s *Server) SetPeerTLS(c *tls.Config) error {
	if s.forwarder == nil {
		return errors.New("leaseserver: Peers.Election is nil: this server connects to no others")
	}
	s.forwarder.transport.Swap(newPeerTransport(c)).CloseIdleConnections()
	s.forwarder.look()
	return nil
}

// Configure prepares the program's own HTTP server, which serves the Handler, for Config.Peers:
// h then uses HTTP/2, even without TLS, and ends a connection whose other side is silent.
// Without Peers it changes nothing.
func (s *Server) Configure(h *http.Server) {
	if s.forwarder == nil {
		return
	}
	h.Protocols = protocols(true)
	h.HTTP2 = &http.HTTP2Config{SendPingTimeout: aliveEvery, PingTimeout: aliveWithin, MaxConcurrentStreams: s.MaxWaiters + manyAtOnce}
}

// elected returns the active server, and the other answers of Election.Active.
func (f *forwarder) elected() (active place, self bool, changed <-chan struct{}) {
	if e, ok := f.peers.Election.(IdentifyingElection); ok {
		active.url, active.process, self, changed = e.ActiveProcess()
	} else {
		active.url, self, changed = f.peers.Election.Active()
	}
	return active, self, changed
}

// run follows the Election until ctx ends.
func (f *forwarder) run(ctx context.Context) {
	defer func() { f.transport.Load().CloseIdleConnections() }()
	defer f.point(place{})
	unreached := "" // the server whose failure was logged
	for ctx.Err() == nil {
		active, self, changed := f.elected()
		f.stand(self)
		next := aliveEvery
		if active.url == "" || self {
			f.point(place{})
		} else if err := f.probe(ctx, active, changed); errors.Is(err, errChanged) {
			continue
		} else if err != nil {
			f.point(place{})
			if next = tryEvery; active.url != unreached {
				f.logger.LogAttrs(ctx, slog.LevelWarn, "server_unreachable", slog.String("active", active.url), slog.Any("error", err))
			}
			unreached = active.url
		} else {
			f.point(active)
			unreached = ""
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		case <-f.failed:
			_ = pause.For(ctx, pause.Jitter(tryEvery, 0.5))
		}
		timer.Stop()
	}
}

// stand records whether this server is active.
func (f *forwarder) stand(active bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case active && !f.active:
		f.term, f.lose = context.WithCancel(context.Background())
		f.logger.LogAttrs(context.Background(), slog.LevelInfo, "server_active")
	case !active && f.active:
		f.lose()
		f.logger.LogAttrs(context.Background(), slog.LevelInfo, "server_not_active")
	}
	f.active = active
	f.metrics.active.Set(one(active))
}

// point sets where requests are answered. If that changes, the requests that wait move there.
func (f *forwarder) point(target place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if target == f.target {
		return
	}
	f.logger.LogAttrs(context.Background(), slog.LevelInfo, "server_forwards", slog.String("to", cmp.Or(target.url, "nobody")))
	f.target = target
	f.metrics.forwards.Set(one(target.url != ""))
	f.move()
	f.until, f.move = context.WithCancel(context.Background())
}

// direction returns where requests are answered, the zero value = here, and a context that ends when that
// changes.
func (f *forwarder) direction() (target place, until context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.target, f.until
}

// fail records that a request could not be forwarded. Until a probe succeeds, this server answers.
func (f *forwarder) fail(target place) {
	if now, _ := f.direction(); now == target {
		f.point(place{})
	}
	f.look()
}

// look makes run probe the active server soon.
func (f *forwarder) look() {
	select {
	case f.failed <- struct{}{}:
	default:
	}
}

// isActive reports whether this server is active, without asking the Election.
func (f *forwarder) isActive() bool {
	if f == nil {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active
}

// lead returns a context that ends when this server is not active any more; false if it is not.
func (f *forwarder) lead() (term context.Context, ok bool) {
	_, self, _ := f.peers.Election.Active()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.term, self && f.active
}

// probe asks a server whether it is active, and takes requests from this one.
func (f *forwarder) probe(ctx context.Context, target place, changed <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	ctx, end := endedBy(ctx, changed, errChanged)
	defer end()
	base, err := baseURL(target.url)
	if err != nil {
		return err
	}
	transport := f.transport.Load()
	if now, _ := f.direction(); now != target || f.recognized != transport {
		if err := f.recognize(ctx, target.url, base); err != nil {
			return err
		}
		f.recognized = transport
	}
	header := make(http.Header)
	f.sign(header, target, "")
	_, err = f.ask(ctx, base, header)
	return err
}

// ask asks a server whether it is active, and returns the header of its answer. HTTP/2 needs nobody to read the body.
func (f *forwarder) ask(ctx context.Context, base *url.URL, header http.Header) (http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath(activeRoute).String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header = header
	answer, err := f.transport.Load().RoundTrip(r)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	_ = answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNoContent:
		return answer.Header, nil
	case http.StatusMisdirectedRequest:
		return nil, errNotActive
	}
	return nil, fmt.Errorf("it answered %d", answer.StatusCode)
}

// errChanged ends a probe when the Election's answer has changed.
var errChanged = errors.New("the active server has changed")

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// errNotActive is the error of a request that a server refused because it is not active, or does
// not recognize this one. Nothing was done.
var errNotActive = errors.New("it is away, not active, or does not know this server's token or certificate")
