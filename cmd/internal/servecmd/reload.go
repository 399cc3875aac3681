package servecmd

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// tls returns the server's TLS configuration, nil without TLS. It uses the certificate that was read last.
func (s *locksCommand) tls() (*tls.Config, error) {
	if s.certificate == "" && s.key == "" {
		return nil, nil //nolint:nilnil // no TLS, no error
	}
	if err := s.readCertificate(); err != nil {
		return nil, err
	}
	config := &tls.Config{GetCertificate: s.getCertificate, MinVersion: tls.VersionTLS12}
	if s.clientCA != "" {
		if err := s.readAuthorities(); err != nil {
			return nil, err
		}
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.verifying.Load(), nil }
	}
	return config, nil
}

func (s *locksCommand) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.pair.Load(), nil
}

func (s *locksCommand) readCertificate() error {
	pair, err := tls.LoadX509KeyPair(s.certificate, s.key)
	if err != nil {
		return program.UsageError("--tls-cert and --tls-key: %w", err)
	}
	s.pair.Store(&pair)
	return nil
}

// readAuthorities makes new connections accept only clients that the file's authorities certify. TLS
// sessions are not resumed: that would bypass the change.
func (s *locksCommand) readAuthorities() error {
	pool, err := lockserver.ReadAuthorities("--tls-client-ca", s.clientCA)
	if err != nil {
		return err
	}
	s.verifying.Store(&tls.Config{
		GetCertificate: s.getCertificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, SessionTicketsDisabled: true,
	})
	return nil
}

// reload rereads tokens, policies, certificate and authorities at each SIGHUP, until stop. If a file
// is not valid, the previous contents stay in use.
func (s *locksCommand) reload(ctx context.Context, app *program.App, server *leaseserver.Server) (stop func()) {
	hangups := make(chan os.Signal, 1)
	if s.tokenFile != "" || s.ttlFile != "" || s.certificate != "" || s.peers.authority != "" { // otherwise closing the terminal ends the server
		signal.Notify(hangups, syscall.SIGHUP)
	}
	return background.Run(ctx, func(ctx context.Context) {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				s.readAgain(app, server)
			}
		}
	})
}

func (s *locksCommand) readAgain(app *program.App, server *leaseserver.Server) {
	said := func(what string, err error) {
		if err != nil {
			app.Logger().Error("not read again: what was there before stays", slog.String("what", what), slog.Any("error", err))
			return
		}
		app.Logger().Info("read again", slog.String("what", what))
	}
	if s.tokenFile != "" {
		tokens, err := lockserver.ReadTokens("--auth-token-file", s.tokenFile)
		if err == nil {
			err = server.SetTokens(tokens)
		}
		said("tokens", err)
	}
	if s.ttlFile != "" {
		policies, err := lockserver.ReadTTLPolicies("--ttl-policy-file", s.ttlFile)
		if err == nil {
			err = server.SetTTLPolicies(policies)
		}
		said("ttl policies", err)
	}
	if s.certificate != "" {
		said("certificate", s.readCertificate())
	}
	if s.clientCA != "" {
		said("authorities", s.readAuthorities())
	}
	if s.peers.authority != "" {
		config, err := s.peerTLS()
		if err == nil {
			err = server.SetPeerTLS(config)
		}
		said("authorities of peers", err)
	}
}
