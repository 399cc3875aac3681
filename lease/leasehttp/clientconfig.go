package leasehttp

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/identity"
	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/lease"
)

// Defaults of a ClientConfig.
const (
	DefaultTTL     = 15 * time.Second
	DefaultTimeout = 10 * time.Second
	DefaultResends = 3
)

// A ClientConfig describes a Client. Only BaseURLs is required.
type ClientConfig struct {
	// BaseURLs has the URL of the server, such as "https://locks.example:8443", or of its socket,
	// such as "unix:///run/pglatch/locks.sock" (without HTTPClient and TLS). If several servers
	// share one store, list them all. The client uses the first server until it gives no answer, or
	// an answer that is not about a lease, such as 502 or 503. Then the client fails over to the
	// next server, even in the middle of a call, and stays there. Servers on different stores would
	// each grant the lease. The client does not follow redirects to another server.
	BaseURLs []string

	// Token is the bearer token, "" = none. It is sent only over TLS or to loopback, unless
	// AllowInsecure is set.
	Token         string
	AllowInsecure bool

	// TLS configures connections to an https server: RootCAs, client certificates and so on. nil
	// = Go's defaults and the system's certificates.
	TLS *tls.Config

	// HTTPClient sends the requests; TLS must then be nil. nil = the Client makes its own, which
	// uses HTTP/1.1 and keeps up to 1,024 connections. If you set one, it should have no Timeout.
	// With HTTP/2, it needs a way to detect a silent connection, because all requests share one
	// connection.
	HTTPClient *http.Client

	// Owner is the owner of the leases that Do acquires. "" = the host's name and a random part.
	Owner string

	// TTL is the time to live of leases that are acquired without a TTL of their own. 0 = 15 s.
	TTL time.Duration

	// Margin is subtracted from the end of each lease, to allow for clocks that run at different
	// rates, and for the time that the work needs to stop; see lease.Trust. 0 = a tenth; negative =
	// none.
	Margin time.Duration

	// Timeout bounds each attempt to send a request, in addition to the time that the request waits
	// for a lock. 0 = 10 s. With several servers, an attempt that does not wait gets only a part of
	// the remaining time. So the others can be tried before the context or the lease ends.
	Timeout time.Duration

	// Resends is how often a request is sent again if its answer was lost. Resending is safe:
	// the servers give the same answer. 0 = 3, or once to each server if there are more;
	// negative = never, and the next request goes to another server.
	Resends int

	// Logger receives one warning for each call of AcquireWithRetry or Do that waits because
	// no server answers. nil = slog.Default(), because a silent wait would look like a hang.
	Logger *slog.Logger
}

func (c *ClientConfig) setDefaults() {
	if c.Owner == "" {
		c.Owner = identity.Random()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Resends = max(cmp.Or(c.Resends, DefaultResends), 0)
}

func (c *ClientConfig) parse() ([]*url.URL, error) {
	if len(c.BaseURLs) == 0 {
		return nil, errors.New("leasehttp: BaseURLs is empty: give the server's, such as http://127.0.0.1:8080")
	}
	var bases []*url.URL
	for _, text := range c.BaseURLs {
		base, err := c.parseBase(text)
		if err != nil {
			return nil, err
		}
		bases = append(bases, base)
	}
	switch {
	case strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("leasehttp: Token has characters that a header cannot carry: use letters and digits")
	case c.TTL != 0 && (c.TTL < lease.MinTTL || c.TTL > lease.MaxTTL):
		return nil, fmt.Errorf("leasehttp: TTL is %v: use %v to %v", c.TTL, lease.MinTTL, lease.MaxTTL)
	case c.TLS != nil && c.HTTPClient != nil:
		return nil, errors.New("leasehttp: TLS and HTTPClient are both set: set it in the HTTPClient's Transport")
	case c.Timeout < 0:
		return nil, fmt.Errorf("leasehttp: Timeout is %v: use 0 for the default, or more", c.Timeout)
	}
	return bases, nil
}

func (c *ClientConfig) parseBase(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("leasehttp: BaseURLs: %w", err)
	}
	if base.Scheme == schemeUnix {
		return base, c.checkSocket(base)
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "", base.RawQuery != "", base.Fragment != "":
		return nil, fmt.Errorf("leasehttp: BaseURLs has %q: use one such as http://127.0.0.1:8080", base.Redacted())
	case base.User != nil:
		return nil, errors.New("leasehttp: BaseURLs has a user: use Token")
	case c.Token != "" && base.Scheme == "http" && base.Hostname() != "localhost" && !loopback.Is(base.Hostname()) && !c.AllowInsecure:
		return nil, fmt.Errorf("leasehttp: Token would be sent to %s in the clear: use https, or set AllowInsecure", base.Host)
	}
	return base, nil
}

// schemeUnix is the scheme of a URL with the path of a Unix socket.
const schemeUnix = "unix"

func (c *ClientConfig) checkSocket(base *url.URL) error {
	switch {
	case base.Host != "", !strings.HasPrefix(base.Path, "/"), base.RawQuery != "", base.Fragment != "":
		return fmt.Errorf("leasehttp: BaseURLs has %q: use an absolute path, such as unix:///run/pglatch/locks.sock", base.Redacted())
	case c.HTTPClient != nil:
		return errors.New("leasehttp: BaseURLs has a Unix socket, and HTTPClient is set: have its Transport dial there, with the base http://localhost")
	}
	return nil
}
