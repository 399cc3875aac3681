package leaseserver

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"golang.org/x/net/netutil"

	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/internal/ratelimit"
	"github.com/pglatch/pglatch/lease/shared"
)

// A Server answers requests for leases. It is safe for concurrent use.
type Server struct {
	Config // validated, with its defaults

	meter     *meter
	metrics   *metrics
	queue     *queue
	forwarder *forwarder // nil = there are no other servers
	shares    *shared.Locker
	memo      memo
	tokens    atomic.Pointer[knownTokens] // nil = none
	// the longest prefix first
	ttlPolicies atomic.Pointer[[]TTLPolicy]
	limiter     *ratelimit.Limiter
	http        *http.Server

	draining atomic.Bool
	shutdown sync.Once
}

// New returns a server. If the config is not valid, the error names the field. New starts nothing.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.setDefaults()
	s := &Server{Config: c}
	var err error
	if s.metrics, err = newMetrics(c.Registry, func() float64 { return float64(s.queue.length()) }); err != nil {
		return nil, fmt.Errorf("leaseserver: Registry: %w", err)
	}
	s.meter = newMeter(c.Store, c.StoreTimeout, s.metrics)
	s.queue = newQueue(&c, s.meter)
	s.forwarder = newForwarder(&c, s.metrics)
	s.meter.feed = newFeed(&c, s.forwarder, s.queue)
	if s.shares, err = newShares(s); err != nil {
		return nil, fmt.Errorf("leaseserver: %w", err)
	}
	if len(c.Tokens) > 0 {
		s.setTokens(c.Tokens)
	}
	if err := s.SetTTLPolicies(c.TTLPolicies); err != nil {
		return nil, err
	}
	if c.Rate > 0 {
		s.limiter = ratelimit.New(c.Rate, c.Burst)
	}
	s.http = &http.Server{
		Handler:           s.handler(),
		TLSConfig:         c.TLS,
		ReadHeaderTimeout: c.ReadTimeout,
		ReadTimeout:       c.ReadTimeout,
		WriteTimeout:      c.writeTimeout(),
		IdleTimeout:       c.IdleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(&httpLog{c.Logger}, "", 0),
	}
	s.Configure(s.http)
	return s, nil
}

// Handler returns the handler of all routes, for programs that have their own http.Server. Such
// programs must also run Monitor, and call Configure for their server. For requests that wait,
// the handler removes that server's ReadTimeout. A WriteTimeout must be longer than the sum of
// MaxWait, ten StoreTimeouts and five seconds.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// ListenAndServe listens on a TCP address such as "127.0.0.1:8080", and then calls Serve.
func (s *Server) ListenAndServe(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("leaseserver: %w", err)
	}
	return s.Serve(ctx, listener)
}

// Serve answers requests until ctx ends or Shutdown is called. It returns when the requests in
// progress are answered, at the latest after ShutdownTimeout. After an orderly shutdown it
// returns nil. It closes the listener. On an address that is not loopback, it refuses to start
// without TLS, or without Tokens or Authorize, unless AllowInsecure is set.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	if err := s.checkExposure(ctx, listener.Addr()); err != nil {
		_ = listener.Close()
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	// The monitor ends last, because other servers must be notified of releases during the
	// shutdown.
	monitorCtx, stopMonitor := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMonitor()
	wg.Go(func() { s.Monitor(monitorCtx) })
	served := make(chan error, 1)
	wg.Go(func() { served <- s.serve(netutil.LimitListener(listener, s.MaxConns)) }) // Shutdown ends it
	select {
	case err := <-served:
		if !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("leaseserver: %w", err)
		}
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ShutdownTimeout)
	defer cancel()
	return s.Shutdown(end)
}

func (s *Server) serve(listener net.Listener) error {
	if s.TLS != nil {
		return s.http.ServeTLS(listener, "", "")
	}
	return s.http.Serve(listener)
}

// Shutdown makes /readyz fail, ends Serve, refuses waiting requests as busy, and blocks until all
// other requests are answered. If ctx ends before that, it closes their connections and returns
// an error. Store operations in progress can still take effect.
func (s *Server) Shutdown(ctx context.Context) error {
	s.shutdown.Do(func() {
		s.draining.Store(true)
		close(s.queue.closing)
	})
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
		return fmt.Errorf("leaseserver: shutdown with requests under way: %w", err)
	}
	return nil
}

// checkExposure refuses an address that others can reach, if they could read the traffic or use the
// server without rights.
func (s *Server) checkExposure(ctx context.Context, address net.Addr) error {
	if loopback.Listens(address) {
		return nil
	}
	missing := ""
	switch {
	case s.TLS == nil:
		missing = "TLS"
	case s.tokens.Load() == nil && s.Authorize == nil:
		missing = "Tokens"
	default:
		return nil
	}
	if s.AllowInsecure {
		s.Logger.LogAttrs(ctx, slog.LevelWarn, "serving_insecurely", slog.String("address", address.String()), slog.String("missing", missing))
		return nil
	}
	return fmt.Errorf("leaseserver: %s is not loopback and %s is not set: set it, or AllowInsecure", address, missing)
}
