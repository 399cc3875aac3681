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

// A ClientTLS is the files of a client's TLS configuration.
type ClientTLS struct{ Authority, Cert, Key string }

// Config returns the configuration, nil for Go's defaults. The certificate is read at each handshake, so that it can be
// replaced. For errors, authority names the file of the authorities, and pair those of the certificate and its key.
func (c ClientTLS) Config(authority, pair string) (*tls.Config, error) {
	if c == (ClientTLS{}) {
		return nil, nil //nolint:nilnil // no configuration, no error
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.Authority != "" {
		var err error
		if config.RootCAs, err = ReadAuthorities(authority, c.Authority); err != nil {
			return nil, err
		}
	}
	if c.Cert != "" || c.Key != "" {
		read := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			certificate, err := tls.LoadX509KeyPair(c.Cert, c.Key)
			return &certificate, err
		}
		if _, err := read(nil); err != nil {
			return nil, program.UsageError("%s: %w", pair, err)
		}
		config.GetClientCertificate = read
	}
	return config, nil
}
