package pgsession

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/background"
)

// errNoConn is the error of a DialFunc that returns neither a connection nor an error.
var errNoConn = errors.New("the function that dials returned no connection")

// outlive turns panics in the program's functions into errors. pgx calls some of them on goroutines of
// its own, where a panic ends the process, and an end of the goroutine leaves a caller without an answer.
// BeforeConnect and DialFunc are called by abandon, which does the same. cc is a copy.
func outlive(cc *pgx.ConnConfig) {
	if f := cc.LookupFunc; f != nil {
		cc.LookupFunc = func(ctx context.Context, host string) (addrs []string, err error) {
			err = background.Outlive(func() (err error) { addrs, err = f(ctx, host); return err })
			return addrs, err
		}
	}
	if f := cc.AfterNetConnect; f != nil {
		cc.AfterNetConnect = func(ctx context.Context, config *pgconn.Config, conn net.Conn) (used net.Conn, err error) {
			err = background.Outlive(func() (err error) { used, err = f(ctx, config, conn); return err })
			if used == nil { // pgx closes it
				used, err = conn, cmp.Or(err, errNoConn)
			}
			return used, err
		}
	}
	if f := cc.ValidateConnect; f != nil {
		cc.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			return background.Outlive(func() error { return f(ctx, conn) })
		}
	}
	if f := cc.AfterConnect; f != nil {
		cc.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			return background.Outlive(func() error { return f(ctx, conn) })
		}
	}
	if f := cc.OnNotice; f != nil {
		cc.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
			_ = background.Outlive(func() error { f(conn, notice); return nil })
		}
	}
	if f := cc.OnPgError; f != nil {
		cc.OnPgError = func(conn *pgconn.PgConn, failure *pgconn.PgError) (keep bool) {
			_ = background.Outlive(func() error { keep = f(conn, failure); return nil })
			return keep
		}
	}
	outliveTLS(cc.TLSConfig)
	for _, fallback := range cc.Fallbacks {
		outliveTLS(fallback.TLSConfig)
	}
}

// outliveTLS is outlive for the functions of a handshake. tc can be nil.
func outliveTLS(tc *tls.Config) {
	if tc == nil {
		return
	}
	if f := tc.VerifyConnection; f != nil {
		tc.VerifyConnection = func(state tls.ConnectionState) error {
			return background.Outlive(func() error { return f(state) })
		}
	}
	if f := tc.VerifyPeerCertificate; f != nil {
		tc.VerifyPeerCertificate = func(raw [][]byte, chains [][]*x509.Certificate) error {
			return background.Outlive(func() error { return f(raw, chains) })
		}
	}
	if f := tc.GetClientCertificate; f != nil {
		tc.GetClientCertificate = func(request *tls.CertificateRequestInfo) (cert *tls.Certificate, err error) {
			err = background.Outlive(func() (err error) { cert, err = f(request); return err })
			return cert, err
		}
	}
}
