package lockserver

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

// ReadAuthorities reads a file with certificates of authorities.
func ReadAuthorities(flag, file string) (*x509.CertPool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, program.UsageError("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, program.UsageError("%s: %s has no certificate in PEM", flag, file)
	}
	return pool, nil
}

// tls returns the client's TLS configuration, nil for Go's defaults. Its certificate is read at
// each handshake, so that it can be replaced.
func (s *ClientFlags) tls() (*tls.Config, error) {
	if s.authority == "" && s.cert == "" && s.key == "" {
		return nil, nil //nolint:nilnil // no configuration, no error
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.authority != "" {
		pool, err := ReadAuthorities("--tls-ca", s.authority)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if s.cert != "" || s.key != "" {
		read := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.cert, s.key)
			return &pair, err
		}
		if _, err := read(nil); err != nil {
			return nil, program.UsageError("--tls-cert and --tls-key: %w", err)
		}
		config.GetClientCertificate = read
	}
	return config, nil
}
