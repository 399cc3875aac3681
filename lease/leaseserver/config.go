package leaseserver

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/lease"
)

// Defaults of a Config.
const (
	DefaultMaxBody         = 256 << 10
	DefaultMaxWait         = time.Minute
	DefaultMaxWaiters      = 10_000
	DefaultMaxConns        = 16_384
	DefaultPollInterval    = time.Second
	DefaultSweepInterval   = 5 * time.Second
	DefaultStoreTimeout    = 5 * time.Second
	DefaultReadTimeout     = 10 * time.Second
	DefaultIdleTimeout     = 2 * time.Minute
	DefaultShutdownTimeout = 15 * time.Second
)

// A Config describes a Server. Only Store is required.
type Config struct {
	// Store keeps the leases. The caller closes it after Serve or Shutdown has returned.
	Store lease.Store

	// Tokens are the bearer tokens that the server accepts, each with its right. To replace a
	// token without downtime, set both the old and the new one, or call SetTokens.
	Tokens []Token

	// Authorize replaces Tokens: it decides whether a request is allowed. If it returns an error,
	// the server answers 403 without the error's text.
	Authorize func(r *http.Request) error

	// TLS makes Serve and ListenAndServe use TLS. nil = plain HTTP.
	TLS *tls.Config

	// AllowInsecure lets a server without Tokens and Authorize answer every client. It also lets a
	// server without TLS, or without Tokens and Authorize, listen on addresses other than loopback.
	// Without AllowInsecure, such a server answers only clients on the same machine that address it
	// as localhost, and whose requests have no header that proxies add. A proxy on this machine
	// that adds no such header lets everybody in: behind any proxy, set Tokens. On a Unix socket,
	// the server answers every client that the file's permissions let connect, whatever host the
	// client names.
	AllowInsecure bool

	// Peers are the other servers of the store, and the election of the active one. Zero = there are
	// no other servers, or each server has queues of its own. In the second case there is no order
	// between the waiters of different servers: they poll, and take turns. See the package's
	// documentation on several servers.
	Peers Peers

	// MaxBody is the maximum size of a body in bytes. 0 = 256 KiB, which has room for a batch of 1,000 operations.
	MaxBody int64

	// MaxWait is the maximum of ?wait=; the server shortens longer waits to it. 0 = 1 min.
	MaxWait time.Duration

	// MaxWaiters is how many requests can wait for locks at a time. As many more can watch
	// locks. Further requests are refused as busy. 0 = 10,000.
	MaxWaiters int

	// MaxConns is how many connections can be open at a time; further connections wait to be
	// accepted. 0 = 16,384.
	MaxConns int

	// Rate is how many requests per second a client address can make in the long run. 0 = no limit.
	Rate float64

	// Burst is how many requests a client address can make at once. 0 = twice the Rate.
	Burst int

	// TTLPolicies bound the TTLs of leases by the names of their locks, and set the TTL of requests
	// without one. SetTTLPolicies changes them. nil = lease.MinTTL to lease.MaxTTL, and requests
	// without a TTL are refused.
	TTLPolicies []TTLPolicy

	// PollInterval is how often the first waiter for a lock checks whether the lock became free
	// other than through this server. It varies by up to a half. 0 = 1 s; negative = never, for
	// a store that has no other writers.
	PollInterval time.Duration

	// SweepInterval is how often the monitor sweeps the store; see lease.SweepRequest. 0 = 5 s.
	SweepInterval time.Duration

	// Retention is how long the store keeps the names of leases that have ended; see
	// lease.SweepRequest. 0 = one hour.
	Retention time.Duration

	// StoreTimeout bounds one operation of the store. 0 = 5 s.
	StoreTimeout time.Duration

	// ReadTimeout bounds the time in which a request must arrive. 0 = 10 s.
	ReadTimeout time.Duration

	// IdleTimeout is how long an unused connection stays open. 0 = 2 minutes.
	IdleTimeout time.Duration

	// ShutdownTimeout bounds how long Serve takes to end. 0 = 15 s.
	ShutdownTimeout time.Duration

	// The server registers its metrics with Registry, and /metrics shows that registry. nil = the
	// server makes a registry, which also has the metrics of the process and of Go's runtime.
	Registry *prometheus.Registry

	// Logger receives the server's log. nil = nothing is logged.
	Logger *slog.Logger
}

const (
	// shareOperations is how many operations of the store a share needs one after the other, and sharePatience
	// how long a request for one stays at the gate if it does not wait.
	shareOperations = 5
	sharePatience   = time.Second
)

// answerTime is the longest time until the answer to a request that waits for this long. A share
// takes longest.
func (c *Config) answerTime(wait time.Duration) time.Duration {
	return wait + sharePatience + shareOperations*c.StoreTimeout
}

// forwardTime is how long the active server has for the answer.
func (c *Config) forwardTime(wait time.Duration) time.Duration {
	return c.answerTime(wait) + aliveWithin
}

// writeTimeout bounds a request from its first byte to its answer. One that waits, and could not be
// forwarded, is answered here when its time is over.
func (c *Config) writeTimeout() time.Duration {
	return c.ReadTimeout + c.forwardTime(c.MaxWait) + c.answerTime(0)
}

func (c *Config) validate() error {
	if c.Store == nil {
		return fmt.Errorf("leaseserver: Store is nil: give a lease.Store")
	}
	if len(c.Tokens) > 0 && c.Authorize != nil {
		return fmt.Errorf("leaseserver: Tokens and Authorize are both set: use one")
	}
	if err := checkTokens(c.Tokens); err != nil {
		return err
	}
	if err := c.Peers.validate(); err != nil {
		return err
	}
	if _, err := checkTTLPolicies(c.TTLPolicies); err != nil {
		return err
	}
	if c.Rate < 0 || math.IsNaN(c.Rate) || math.IsInf(c.Rate, 0) {
		return fmt.Errorf("leaseserver: Rate is %v: use 0 for no limit, or requests per second", c.Rate)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"MaxBody", time.Duration(c.MaxBody)},
		{"MaxWait", c.MaxWait},
		{"MaxWaiters", time.Duration(c.MaxWaiters)},
		{"MaxConns", time.Duration(c.MaxConns)},
		{"Burst", time.Duration(c.Burst)},
		{"SweepInterval", c.SweepInterval},
		{"Retention", c.Retention},
		{"StoreTimeout", c.StoreTimeout},
		{"ReadTimeout", c.ReadTimeout},
		{"IdleTimeout", c.IdleTimeout},
		{"ShutdownTimeout", c.ShutdownTimeout},
	} {
		if f.value < 0 {
			return fmt.Errorf("leaseserver: %s is negative: use 0 for the default, or more", f.name)
		}
	}
	return nil
}

func (c *Config) setDefaults() {
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxWait = cmp.Or(c.MaxWait, DefaultMaxWait)
	c.MaxWaiters = cmp.Or(c.MaxWaiters, DefaultMaxWaiters)
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	c.Burst = cmp.Or(c.Burst, int(2*c.Rate), 1)
	c.PollInterval = cmp.Or(c.PollInterval, DefaultPollInterval)
	c.SweepInterval = cmp.Or(c.SweepInterval, DefaultSweepInterval)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, DefaultStoreTimeout)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, DefaultReadTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout)
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
		c.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	c.Logger = background.Logger(c.Logger)
}
