package leaseserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestMetricsTellAnOutageOfTheStoreFromALockThatIsHeld(t *testing.T) {
	t.Parallel()
	store := newSilent()
	s, h := servetest.Serve(t, leaseserver.Config{Store: plainStore{store}, StoreTimeout: time.Second})
	cl := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1})
	l := acquire(t, cl, servetest.Ask("job", "a"))
	_, err := cl.Acquire(t.Context(), servetest.Ask("job", "b"))
	require.ErrorIs(t, err, lease.ErrHeld)
	stale := l.Claim
	stale.ID = "x"
	require.ErrorIs(t, cl.Release(t.Context(), stale), lease.ErrStale)
	results := func(op string) map[string]float64 {
		all := map[string]float64{}
		for _, result := range []string{"success", "held", "refused", "gone", "busy", "unavailable"} {
			if n := servetest.Metric(t, s, "lock_"+op+"_total", `"`+result+`"`); n > 0 {
				all[result] = n
			}
		}
		return all
	}
	assert.Equal(t, map[string]float64{"success": 1, "held": 1}, results("acquire"))
	for _, times := range []string{"lock_op_latency_ms", "lock_op_duration_seconds"} {
		assert.InDelta(t, 2, servetest.Metric(t, s, times, `"acquire"`), 0)
	}
	assert.Equal(t, map[string]float64{"refused": 1}, results("release"))
	assert.InDelta(t, 1, servetest.Metric(t, s, "lock_store_up"), 0)
	assert.Zero(t, servetest.Metric(t, s, "lock_store_failures_total"))
	store.hush()
	_, err = cl.Acquire(t.Context(), servetest.Ask("job", "b"))
	require.Error(t, err)
	assert.Equal(t, map[string]float64{"success": 1, "held": 1, "unavailable": 1}, results("acquire"))
	assert.Zero(t, servetest.Metric(t, s, "lock_store_up"))
	assert.InDelta(t, 1, servetest.Metric(t, s, "lock_store_failures_total", `"acquire"`), 0)
	store.speak()
	require.NoError(t, cl.Release(t.Context(), l.Claim))
	assert.InDelta(t, 1, servetest.Metric(t, s, "lock_store_up"), 0)
}

func TestTheServersOwnRegistryHasTheProcessAndTheRuntime(t *testing.T) {
	t.Parallel()
	own, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore()})
	require.NoError(t, err)
	h := httptest.NewServer(own.Handler())
	t.Cleanup(h.Close)
	assert.Positive(t, servetest.Metric(t, own, "go_goroutines"))
	assert.Contains(t, send(t, h, http.MethodGet, "/metrics", "").body, "process_open_fds")
	theirs, _ := servetest.Serve(t, leaseserver.Config{Registry: prometheus.NewRegistry()})
	assert.Zero(t, servetest.Metric(t, theirs, "go_goroutines"), "the program has its own")
}

// A stuck listener cannot accept, as a process without file descriptors.
type stuck struct {
	net.Listener
	once  sync.Once
	ended chan struct{}
}

func (l *stuck) Accept() (net.Conn, error) {
	var err error
	l.once.Do(func() { err = tooManyError{} })
	if err != nil {
		return nil, err
	}
	<-l.ended
	return nil, net.ErrClosed
}

func (l *stuck) Close() error {
	close(l.ended)
	return l.Listener.Close()
}

type tooManyError struct{}

func (tooManyError) Error() string   { return "accept4: too many open files" }
func (tooManyError) Timeout() bool   { return false }
func (tooManyError) Temporary() bool { return true }

func TestConnectionsThatCannotBeAcceptedAreLogged(t *testing.T) {
	t.Parallel()
	var log capture.Text
	s, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore(), Logger: slog.New(slog.NewTextHandler(&log, nil))}) // from Info on, as by default
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, &stuck{Listener: listener, ended: make(chan struct{})}) }()
	await.Until(t, servetest.Bound, func() bool {
		return strings.Contains(log.String(), "too many open files") && strings.Contains(log.String(), "level=WARN")
	})
	stop()
	require.NoError(t, <-served)
}

// A patient is a store that tells of its health.
type patient struct {
	lease.Store
	health func(context.Context) error
}

func (p patient) Health(ctx context.Context) error { return p.health(ctx) }

func TestProbesTellWhatTheStoreSaysOfItself(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what         string
		health       func(context.Context) error
		alive, ready int
	}{
		{"well", func(context.Context) error { return nil }, 204, 204},
		{"a full disk", func(context.Context) error { return &lease.BusyError{Cause: errors.New("full")} }, 204, 503},
		{"away", func(context.Context) error { return errors.New("away") }, 204, 503},
		{"broken", func(context.Context) error { return fmt.Errorf("fdatasync: %w", lease.ErrBroken) }, 503, 503},
		{"silent", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 204, 503},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			config := leaseserver.Config{Store: patient{leasetest.NewStore(), c.health}}
			if c.what == "silent" {
				config.StoreTimeout = 10 * aMoment
			}
			_, h := servetest.Serve(t, config)
			a := send(t, h, http.MethodGet, "/healthz", "")
			assert.Equal(t, c.alive, a.status, a.body)
			a = send(t, h, http.MethodGet, "/readyz", "")
			assert.Equal(t, c.ready, a.status, a.body)
			assert.NotContains(t, a.body, "fdatasync", "the log says it")
		})
	}
}
