package servecmd

import (
	"crypto/tls"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
)

// certificates are the files of a server with TLS, and what was read from them last.
type certificates struct {
	file, key, clientCA string
	insecure            bool // without TLS where others can reach the server
	pair                atomic.Pointer[tls.Certificate]
	verifying           atomic.Pointer[tls.Config] // of client certificates
}

func (s *certificates) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.file, "tls-cert", "", "`file` of the certificate chain in PEM")
	f.StringVar(&s.key, "tls-key", "", "`file` of its key")
	f.StringVar(&s.clientCA, "tls-client-ca", "", "`file` of the authorities in PEM that verify client certificates; clients without a certificate are rejected")
	f.BoolVar(&s.insecure, "insecure-no-tls", false, "DANGER: accept tokens in clear text on an address that is not loopback")
}

// tls returns the server's TLS configuration, nil without TLS. It uses the certificate that was read last.
func (s *certificates) tls() (*tls.Config, error) {
	switch {
	case s.file == "" && s.key == "" && s.clientCA != "":
		return nil, program.UsageError("--tls-client-ca is for TLS: give --tls-cert and --tls-key")
	case s.file == "" && s.key == "":
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

// clearTextError is for an address that others can reach without TLS.
func clearTextError(listen string) error {
	return program.UsageError("--listen is %s, which others can reach: give --tls-cert and --tls-key, or --insecure-no-tls if something else encrypts", listen)
}

func (s *certificates) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return s.pair.Load(), nil
}

func (s *certificates) readCertificate() error {
	pair, err := tls.LoadX509KeyPair(s.file, s.key)
	if err != nil {
		return program.UsageError("--tls-cert and --tls-key: %w", err)
	}
	s.pair.Store(&pair)
	return nil
}

// readAuthorities makes new connections accept only clients that the file's authorities certify. TLS
// sessions are not resumed: that would bypass the change.
func (s *certificates) readAuthorities() error {
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
