package leaseserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/pglatch/pglatch/internal/bearer"
)

// An Election reports which of the servers of one store is active. The active server has all
// queues, and the others forward to it. Package leader/activeserver has an Election for programs
// in Go, which pglatch serve locks uses too. An Election is safe for concurrent use.
//
// No lease depends on an Election. If two servers are active at a time, or none, leases are
// still exclusive, and only the order of waiters suffers.
type Election interface {
	// Active returns the base URL of the active server, such as https://locks-1.example:8443. "" =
	// it is not known. self reports whether this server is the active one. changed is closed when
	// the answer has changed.
	Active() (url string, self bool, changed <-chan struct{})
}

// An IdentifyingElection is an Election that also distinguishes the processes that have one URL after each other. A
// server then forwards only to the process that was elected. Without that, another process can get the requests: one
// that has the URL by now, while the others still believe in the old one. If it serves another store, it would grant
// locks that are held in this store. The Election of leader/activeserver is one.
type IdentifyingElection interface {
	Election

	// ActiveProcess returns the answers of Active, and an identifier of the active server's process: up to 64 letters
	// and digits, the same for all servers of the store. "" = it is not known.
	ActiveProcess() (url, process string, self bool, changed <-chan struct{})
}

// ElectionLock is the name of the lease that elects the active server, if the election uses a lease.
// It has the form of the name of a slot, so no client can acquire it.
const ElectionLock = "pglatch::server::slot"

// Peers configures how the servers of one store find and recognize each other.
type Peers struct {
	// Election names the active server. nil = this server is the only one of its store, or each
	// server has queues of its own.
	Election Election

	// Token is a secret that all servers of the store have, of at least 16 bytes. If
	// Token or Certificate is set, a server accepts forwarded requests only from a
	// server that proves that it has the same. "" = none.
	Token string

	// Certificate is the name of the servers' client certificates, cn:NAME or san:NAME, as in
	// Token.Certificate. A server with such a certificate can forward requests of clients that
	// identify themselves by a certificate; otherwise these clients need tokens. "" = none.
	Certificate string

	// TLS is the configuration for connections to the active server; SetPeerTLS replaces it. nil =
	// Go's defaults.
	//
	// Without Token, a server forwards only to an active server whose certificate its TLS.RootCAs
	// verify, or that is at a loopback address. So http addresses of other machines need a Token.
	TLS *tls.Config
}

func (p *Peers) validate() error {
	switch {
	case p.Election == nil && (p.Token != "" || p.Certificate != "" || p.TLS != nil):
		return errors.New("leaseserver: Peers.Election is nil: set it, or no other field of Peers")
	case p.Token != "" && len(p.Token) < bearer.MinToken:
		return fmt.Errorf("leaseserver: Peers.Token has %d bytes: use %d random ones at least", len(p.Token), bearer.MinToken)
	case p.Certificate == "":
		return nil
	case strings.HasSuffix(p.Certificate, ":*"):
		return fmt.Errorf("leaseserver: Peers.Certificate is %q: use a name that clients do not have", p.Certificate)
	}
	if err := bearer.CheckCertificate(p.Certificate); err != nil {
		return fmt.Errorf("leaseserver: Peers %w", err)
	}
	return nil
}

// baseURL reads the base URL of a server: a scheme and a host.
func baseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("the active server's URL is %q: use a scheme and a host, such as https://locks-1.example:8443", text)
	}
	return u, nil
}

// protocols are those of a server that others forward to. They multiplex requests over one
// connection by HTTP/2, also without TLS.
func protocols(http1 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// errMoved ends a wait that goes on at another server.
var errMoved = errors.New("another server is active now")

// whileBoth returns a context of ctx that ends with errMoved when until ends.
func whileBoth(ctx, until context.Context) (context.Context, context.CancelFunc) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(until, func() { cancel(errMoved) })
	return both, func() {
		stop()
		cancel(nil)
	}
}

// endedBy returns a context of ctx that ends with a cause when signal is closed. The function that ends it waits for its
// goroutine.
func endedBy(ctx context.Context, signal <-chan struct{}, cause error) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-signal:
			end(cause)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		end(nil)
		watching.Wait()
	}
}
