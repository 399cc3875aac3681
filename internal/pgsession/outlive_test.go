package pgsession

import (
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// hostile are the functions of a program that run when a connection is made.
var hostile = map[string]func(c *Config, end func()){
	"BeforeConnect": func(c *Config, end func()) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { end(); return nil }
	},
	"DialFunc": func(c *Config, end func()) {
		c.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) { end(); return nil, nil }
	},
	"LookupFunc": func(c *Config, end func()) {
		c.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) { end(); return nil, nil }
	},
	"AfterNetConnect": func(c *Config, end func()) {
		c.ConnConfig.AfterNetConnect = func(context.Context, *pgconn.Config, net.Conn) (net.Conn, error) { end(); return nil, nil }
	},
	"ValidateConnect": func(c *Config, end func()) {
		c.ConnConfig.ValidateConnect = func(context.Context, *pgconn.PgConn) error { end(); return errWorks }
	},
	"AfterConnect": func(c *Config, end func()) {
		c.ConnConfig.AfterConnect = func(context.Context, *pgconn.PgConn) error { end(); return errWorks }
	},
}

var errWorks = &vaultError{"it returns an error"}

func TestAFunctionOfTheProgramThatPanicsIsAnError(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for how, end := range map[string]func(){"panics": func() { panic("hostile") }, "ends its goroutine": runtime.Goexit, "returns nothing": func() {}} {
		for name, set := range hostile {
			if how == "returns nothing" && name == "BeforeConnect" {
				continue // that is no error
			}
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				cc, err := pgx.ParseConfig(dsn)
				require.NoError(t, err)
				if name == "LookupFunc" {
					cc.Host = "database.invalid"
				}
				c := Config{ConnConfig: cc, T: time.Minute, MaxSessions: 1}
				set(&c, end)
				_, err = Open(t.Context(), c)
				require.ErrorIs(t, err, session.ErrUnavailable)
				_, err = NewDialer(c).Dial(t.Context())
				require.ErrorIs(t, err, session.ErrUnavailable)
			})
		}
	}
}

func TestAHandshakeThatPanicsIsAnError(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(){"panics": func() { panic("hostile") }, "ends its goroutine": runtime.Goexit} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tc := &tls.Config{
				VerifyConnection:      func(tls.ConnectionState) error { end(); return nil },
				VerifyPeerCertificate: nil,
				GetClientCertificate:  func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { end(); return nil, nil },
			}
			outliveTLS(tc)
			require.Error(t, tc.VerifyConnection(tls.ConnectionState{}))
			_, err := tc.GetClientCertificate(nil)
			require.Error(t, err)
			require.Nil(t, tc.VerifyPeerCertificate)
		})
	}
}
