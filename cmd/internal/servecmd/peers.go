package servecmd

import (
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/loopback"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// peers are the flags about the other servers of a store.
type peers struct {
	advertise, tokenFile, certificate, authority, name string
}

// longestAdvertised is what PostgreSQL keeps of a session's application_name, without the fragment.
const longestAdvertised = 58

func (p *peers) addFlags(f *pflag.FlagSet) {
	f.StringVar(&p.advertise, "advertise", "", "`URL` at which the other servers of the store reach this one (default: the loopback address of --listen, without TLS)")
	f.StringVar(&p.tokenFile, "peer-token-file", "", "`file` of the token that the servers of the store know each other by, its first line")
	f.StringVar(&p.certificate, "peer-cert", "", "`name` in the certificates of the servers of the store, cn:NAME or san:NAME: they know each other by it")
	f.StringVar(&p.authority, "peer-ca", "", "`file` of the certificates in PEM that vouch for the servers of the store (default: those of the system)")
	f.StringVar(&p.name, "peer-tls-name", "", "`name` in the active server's certificate (default: the host of its URL)")
}

// election returns this server's part in the election of the active server, and sets config.Peers;
// nil = it is the only server of its store, or has no address for the others.
func (s *locksCommand) election(app *program.App, opened *lockserver.OpenStore, at net.Addr, config *leaseserver.Config) (*election, error) {
	p := s.peers
	given := p.advertise != "" || p.tokenFile != "" || p.certificate != "" || p.authority != "" || p.name != ""
	if opened.Backends == nil {
		if given {
			return nil, program.UsageError("--advertise and --peer-… are for stores of several servers: PostgreSQL and etcd")
		}
		return nil, nil //nolint:nilnil // no election, no error
	}
	advertise, err := p.url(at, config.TLS != nil)
	switch {
	case err != nil:
		return nil, err
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
	e := &election{app: app, opened: opened, url: advertise, identity: advertise + "#" + rand.Text()[:4], changed: make(chan struct{})}
	config.Peers.Election = e
	app.Logger().Info("others reach this server", slog.String("advertise", advertise))
	return e, nil
}

func (p *peers) url(at net.Addr, secure bool) (string, error) {
	if p.advertise == "" {
		if at.Network() == "unix" || !loopback.Listens(at) || secure {
			return "", nil
		}
		return "http://" + at.String(), nil
	}
	u, err := url.Parse(p.advertise)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.User != nil, u.RawQuery != "", u.Fragment != "", u.Path != "" && u.Path != "/":
		return "", program.UsageError("--advertise is %q: use a scheme and a host, such as https://locks-1.example:8443", p.advertise)
	case len(p.advertise) > longestAdvertised:
		return "", program.UsageError("--advertise has %d bytes: use %d at most", len(p.advertise), longestAdvertised)
	}
	return p.advertise, nil
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
		if s.clientCA == "" {
			return nil, program.UsageError("--peer-cert is for servers that ask for certificates: give --tls-client-ca")
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.pair.Load(), nil }
	}
	return config, nil
}
