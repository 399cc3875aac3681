package servecmd

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/activeserver"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// peers are the flags about the other servers of a store.
type peers struct {
	advertise, tokenFile, certificate, authority, name string
}

func (p *peers) addFlags(f *pflag.FlagSet) {
	f.StringVar(&p.advertise, "advertise", "", "`URL` at which the other servers of the store reach this one; an IPv6 address needs no brackets, but a port (default: the loopback address of --listen, without TLS)")
	f.StringVar(&p.tokenFile, "peer-token-file", "", "`file` of the secret that all servers of the store share, its first line; required to forward to other machines without TLS")
	f.StringVar(&p.certificate, "peer-cert", "", "`name` in the certificates of the servers of the store, cn:NAME or san:NAME, by which they trust each other")
	f.StringVar(&p.authority, "peer-ca", "", "`file` of the authorities in PEM that verify the active server (default: those of the system; then https needs --peer-token-file)")
	f.StringVar(&p.name, "peer-tls-name", "", "`name` in the active server's certificate (default: the host of its URL)")
}

// election returns this server's part in the election of the active server, and sets config.Peers;
// nil = it is the only server of its store, or has no address for the others.
func (s *locksCommand) election(app *program.App, opened *lockserver.OpenStore, at net.Addr, config *leaseserver.Config) (*activeserver.Election, error) {
	p := s.peers
	given := p.advertise != "" || p.tokenFile != "" || p.certificate != "" || p.authority != "" || p.name != ""
	if !opened.Shared {
		if given {
			return nil, program.UsageError("--advertise and --peer-… are for stores of several servers: PostgreSQL and etcd")
		}
		return nil, nil //nolint:nilnil // no election, no error
	}
	advertise := p.url(at, config.TLS != nil)
	switch {
	case advertise == "" && given:
		return nil, program.UsageError("--peer-…: say by --advertise where the other servers reach this one")
	case advertise == "":
		app.Logger().Info("without --advertise, this server has its own queues beside those of other servers of the store")
		return nil, nil //nolint:nilnil // the same
	}
	tokens, err := lockserver.ReadTokens("--peer-token-file", p.tokenFile)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		if len(tokens) != 1 || tokens[0].Secret == "" {
			return nil, program.UsageError("--peer-token-file: use a file of one line, the token that all servers of the store have")
		}
		config.Peers.Token = tokens[0].Secret
	}
	if config.Peers.TLS, err = s.peerTLS(); err != nil {
		return nil, err
	}
	config.Peers.Certificate = p.certificate
	var session leader.Backend
	if opened.Session != nil {
		if session, err = opened.Session(); err != nil {
			return nil, err
		}
	}
	e, err := activeserver.New(activeserver.Config{URL: advertise, Store: opened.Store, Session: session, Logger: app.Logger()})
	if wrong, ok := errors.AsType[*leader.ConfigError](err); ok {
		return nil, program.UsageError("--advertise is %v: %s", wrong.Value, wrong.Remedy)
	} else if err != nil {
		return nil, err
	}
	config.Peers.Election = e
	app.Logger().Info("others reach this server", slog.String("advertise", advertise))
	return e, nil
}

// url returns where other servers reach this one; "" = nowhere.
func (p *peers) url(at net.Addr, secure bool) string {
	switch {
	case p.advertise != "":
		return bracketed(p.advertise)
	case at.Network() == "unix" || !loopback.Listens(at) || secure:
		return ""
	}
	return "http://" + at.String()
}

// bracketed returns a URL with brackets around an IPv6 address that has none, as in
// https://fd00::5:8443. Then the port is what follows the last colon.
func bracketed(text string) string {
	scheme, rest, _ := strings.Cut(text, "://")
	at := strings.LastIndexByte(rest, ':')
	if at < 0 {
		return text
	}
	ip, err := netip.ParseAddr(rest[:at])
	if err != nil || !ip.Is6() || ip.Zone() != "" {
		return text
	}
	return scheme + "://[" + rest[:at] + "]" + rest[at:]
}

// peerTLS returns the TLS configuration for connections to the active server: with --peer-cert,
// this server's certificate is that of a client, too.
func (s *locksCommand) peerTLS() (*tls.Config, error) {
	if s.peers.authority == "" && s.peers.certificate == "" && s.peers.name == "" {
		return nil, nil //nolint:nilnil // Go's defaults, no error
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.peers.name}
	if s.peers.authority != "" {
		pool, err := lockserver.ReadAuthorities("--peer-ca", s.peers.authority)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if s.peers.certificate != "" {
		if s.certificates.clientCA == "" {
			return nil, program.UsageError("--peer-cert is for servers that ask for certificates: give --tls-client-ca")
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.certificates.pair.Load(), nil }
	}
	return config, nil
}
