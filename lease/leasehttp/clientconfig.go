package leasehttp

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/lease"
)

// Defaults of a ClientConfig.
const (
	DefaultTTL     = 15 * time.Second
	DefaultTimeout = 10 * time.Second
	DefaultResends = 3

	maxIdleConns = 1024
	maxIdleTime  = DefaultIdleTimeout / 2 // before the server ends them
)

// A ClientConfig describes a Client. Only BaseURL is required.
type ClientConfig struct {
	// BaseURL is where the server is, such as "https://locks.example:8443". No redirect
	// away from there is followed.
	BaseURL string

	// Token is the bearer token, "" = none. It is sent over TLS or to loopback only,
	// unless AllowInsecure is set.
	Token         string
	AllowInsecure bool

	// HTTPClient carries the requests. nil = one of the client's own, that keeps
	// connections for 1,024 requests at a time. An own one should have no Timeout.
	HTTPClient *http.Client

	// Owner is the owner of leases that Do takes. "" = the host's name, the process id
	// and a random part.
	Owner string

	// TTL is the time to live of leases that are acquired without saying one. 0 = 15 s.
	TTL time.Duration

	// Margin is kept free at the end of each lease, for clocks of different rates and
	// for the work to stop; see lease.Trust. 0 = a tenth; negative = none.
	Margin time.Duration

	// Timeout bounds each sending of a request, beside the time that it waits for a
	// lock. 0 = 10 s.
	Timeout time.Duration

	// Resends is how often a request is sent again when its answer was lost. That is
	// safe: the server gives the same answer. 0 = 3; negative = never.
	Resends int
}

func (c *ClientConfig) setDefaults() {
	if c.Owner == "" {
		host, _ := os.Hostname()
		c.Owner = fmt.Sprintf("%.64s-%d-%.8s", cmp.Or(host, "host"), os.Getpid(), rand.Text())
	}
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Resends = max(cmp.Or(c.Resends, DefaultResends), 0)
}

// transportTo carries messages to base: by client, or, if that is nil, by connections of
// its own, directly if nothing is needed between.
func transportTo(client *http.Client, base *url.URL, header http.Header) transport {
	if client != nil {
		return &httpTransport{client, base, header}
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: base})
	if base.Scheme == "http" && proxy == nil && err == nil && isPlainHost(base.Host) {
		return newDirect(base, header)
	}
	return &httpTransport{&http.Client{Transport: newTransport(), CheckRedirect: stay}, base, header}
}

// stay follows no redirect: whoever set BaseURL said where claims may be sent.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// isPlainHost reports whether a host can be sent and dialled as it is.
func isPlainHost(host string) bool {
	return !strings.ContainsFunc(host, func(r rune) bool { return r == '%' || r > '~' })
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: DefaultTimeout}).DialContext,
		MaxIdleConns:        maxIdleConns,
		MaxIdleConnsPerHost: maxIdleConns,
		IdleConnTimeout:     maxIdleTime,
		TLSHandshakeTimeout: DefaultTimeout,
		DisableCompression:  true,
	}
}

func (c *ClientConfig) parse() (*url.URL, error) {
	base, err := url.Parse(c.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("leasehttp: BaseURL: %w", err)
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "", base.RawQuery != "", base.Fragment != "":
		return nil, fmt.Errorf("leasehttp: BaseURL is %q: use one such as http://127.0.0.1:8080", base.Redacted())
	case base.User != nil:
		return nil, errors.New("leasehttp: BaseURL has a user: use Token")
	case c.Token != "" && base.Scheme == "http" && base.Hostname() != "localhost" && !loopback.Is(base.Hostname()) && !c.AllowInsecure:
		return nil, fmt.Errorf("leasehttp: Token would be sent to %s in the clear: use https, or set AllowInsecure", base.Host)
	case strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("leasehttp: Token has characters that a header cannot carry: use letters and digits")
	case c.TTL != 0 && (c.TTL < lease.MinTTL || c.TTL > lease.MaxTTL):
		return nil, fmt.Errorf("leasehttp: TTL is %v: use %v to %v", c.TTL, lease.MinTTL, lease.MaxTTL)
	case c.Timeout < 0:
		return nil, fmt.Errorf("leasehttp: Timeout is %v: use 0 for the default, or more", c.Timeout)
	}
	return base, nil
}
