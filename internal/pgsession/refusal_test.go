package pgsession

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// passwordServer is a server that asks the role app for a password.
func passwordServer(t *testing.T) *pgserver.Server {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin := pgtest.Connect(t, server.DSN(""))
	var hba string
	require.NoError(t, admin.QueryRow(t.Context(), "SHOW hba_file").Scan(&hba))
	require.NoError(t, os.WriteFile(hba, []byte("host all app,shut 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n"), 0o600))
	_, err := admin.Exec(t.Context(), `CREATE ROLE app LOGIN PASSWORD 'right'; CREATE ROLE shut LOGIN PASSWORD 'right';
		CREATE ROLE stranger LOGIN; SELECT pg_reload_conf()`)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), `CREATE DATABASE inner_sanctum`)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), `REVOKE CONNECT ON DATABASE inner_sanctum FROM PUBLIC; ALTER ROLE shut NOLOGIN`)
	require.NoError(t, err)
	cc := admin.Config().Copy()
	cc.User, cc.Password = "app", "wrong"
	awaiting.Until(t, awaiting.Patience, func() bool { // until the server has read its file
		conn, err := pgx.ConnectConfig(t.Context(), cc)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return sqlstate.Of(err) == "28P01"
	})
	return server
}

func TestWhatTheServerRefusesIsNoOutageAndSaysWhatHelps(t *testing.T) {
	t.Parallel()
	server := passwordServer(t)
	at := net.JoinHostPort(server.Host(), strconv.Itoa(server.Port()))
	for name, row := range map[string]struct {
		dsn, code, begins, says string
	}{
		"a wrong password":       {"postgres://app:wrong@" + at + "/postgres", "28P01", `password authentication failed for user "app"`, "the password"},
		"a role without login":   {"postgres://shut:right@" + at + "/postgres", "28000", `role "shut" is not permitted to log in`, "its right to log in"},
		"no line in pg_hba.conf": {"postgres://stranger@" + at + "/postgres", "28000", `no pg_hba.conf entry`, "pg_hba.conf"},
		"no such database":       {"postgres://app:right@" + at + "/nowhere", "3D000", `database "nowhere" does not exist`, "create the database"},
		"no right to connect":    {"postgres://app:right@" + at + "/inner_sanctum", "42501", `permission denied for database "inner_sanctum"`, "GRANT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := openPool(t, row.dsn, nil)
			var refused *session.RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, session.ErrRefused)
			require.NotErrorIs(t, err, session.ErrUnavailable)
			assert.Equal(t, row.code, sqlstate.Of(err))
			assert.Regexp(t, "^"+row.begins, refused.Error())
			assert.Contains(t, refused.Error(), row.says)
			assert.Contains(t, refused.Error(), at)
			assert.NotContains(t, refused.Error(), "\n")
		})
	}
	// The control: a server that is not there, and one that lets the client in.
	_, err := openPool(t, "postgres://app:wrong@127.0.0.1:1/postgres?connect_timeout=1", nil)
	require.ErrorIs(t, err, session.ErrUnavailable)
	require.NotErrorIs(t, err, session.ErrRefused)
	newPool(t, "postgres://app:right@"+at+"/postgres", nil)
}

func TestOneHostThatRefusesIsNoRefusalWhileAnotherIsSilent(t *testing.T) {
	t.Parallel()
	server := passwordServer(t)
	at := net.JoinHostPort(server.Host(), strconv.Itoa(server.Port()))
	_, err := openPool(t, "postgres://app:wrong@127.0.0.1:1,"+at+"/postgres?connect_timeout=20", nil)
	require.ErrorIs(t, err, session.ErrUnavailable, "the other host can be the primary that restarts")
	require.ErrorContains(t, err, "28P01")
	_, err = openPool(t, "postgres://app:wrong@"+at+","+at+"/postgres", nil)
	require.ErrorIs(t, err, session.ErrRefused, "it is one host")
}

func TestErrorsThatPassAreNoRefusal(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"57P03", "53300", "53200", "08006", "57P01", "40001", "XX000", "25006"} {
		assert.Nil(t, Refusal(&pgconn.PgError{Code: code}), code)
	}
	assert.Nil(t, Refusal(errors.New("a cut network")))
	assert.Nil(t, Refusal(nil))
	assert.NotNil(t, Refusal(&pgconn.PgError{Code: "42501", Message: "permission denied for schema s"}))
}

// tlsServer is a server of PostgreSQL's protocol as far as TLS, with a certificate that nobody knows, for the host other.example.
func tlsServer(t *testing.T) (address string, certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"other.example"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				if _, err := io.ReadFull(conn, make([]byte, 8)); err != nil { // SSLRequest
					return
				}
				if _, err := conn.Write([]byte("S")); err == nil {
					_ = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}).Handshake()
				}
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	return listener.Addr().String(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestACertificateThatCannotBeVerifiedIsARefusal(t *testing.T) {
	t.Parallel()
	at, own := tlsServer(t)
	_, other := tlsServer(t)
	file := func(name string, pem []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem, 0o600))
		return path
	}
	ownFile, otherFile := file("own.pem", own), file("other.pem", other)
	for name, row := range map[string]struct{ mode, root, says string }{
		"of an unknown authority, verify-full": {"verify-full", otherFile, "cannot be verified: x509"},
		"of an unknown authority, verify-ca":   {"verify-ca", otherFile, "unknown authority"},
		"for another host":                     {"verify-full", ownFile, "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := "postgres://app@" + at + "/postgres?sslmode=" + row.mode + "&sslrootcert=" + row.root
			_, err := openPool(t, dsn, nil)
			require.ErrorIs(t, err, session.ErrRefused)
			require.NotErrorIs(t, err, session.ErrUnavailable)
			require.ErrorContains(t, err, row.says)
			require.ErrorContains(t, err, "sslrootcert")
			require.ErrorContains(t, err, at)
			_, err = openPool(t, strings.Replace(dsn, "@", "@127.0.0.1:1,", 1), nil)
			require.ErrorIs(t, err, session.ErrUnavailable, "the other host can be the primary that restarts")
		})
	}
	_, err := openPool(t, "postgres://app@"+at+"/postgres?sslmode=verify-ca&sslrootcert="+ownFile, nil)
	require.ErrorIs(t, err, session.ErrUnavailable, "the control: a server that ends the connection after the handshake")
}

func TestALoginTriggerThatRaisesIsARefusal(t *testing.T) {
	t.Parallel()
	raised := func(code, where string) error {
		return &pgconn.PgError{SeverityUnlocalized: "FATAL", Severity: "FATAL", Code: code, Message: "not at night", Where: where}
	}
	const where = "PL/pgSQL function app.gate() line 3 at RAISE"
	for _, code := range []string{"P0001", "42P01", "22012", "28000"} {
		assert.Contains(t, refusalOf(raised(code, where), true).problem, "not at night", code)
	}
	assert.Contains(t, refusalOf(raised("P0001", where), true).remedy, "login trigger")
	for _, code := range []string{"40001", "53200", "57014", "55P03", "25006", "XX000"} {
		assert.Zero(t, refusalOf(raised(code, where), true), "passes: %s", code)
	}
	assert.Zero(t, refusalOf(raised("P0001", ""), true), "not from a function of the database")
	assert.Nil(t, Refusal(raised("P0001", where)), "of a statement, not of a login")

	server := pgtest.StartServer(t, pgserver.Options{})
	if server.Installation().Major < 17 { // which has no login triggers
		return
	}
	admin := connect(t, server.DSN(""))
	admin.exec(`CREATE ROLE app LOGIN`)
	admin.exec(`CREATE FUNCTION gate() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN IF session_user = 'app' THEN RAISE EXCEPTION 'not at night'; END IF; END $$`)
	admin.exec(`CREATE EVENT TRIGGER gate ON login EXECUTE FUNCTION gate()`)
	_, err := openPool(t, pgtest.As(t, server.DSN(""), "app"), nil)
	require.ErrorIs(t, err, session.ErrRefused)
	require.NotErrorIs(t, err, session.ErrUnavailable)
	require.ErrorContains(t, err, "not at night")
	require.ErrorContains(t, err, "login trigger")
	newPool(t, server.DSN(""), nil)
}

func TestAnErrorOfBeforeConnectIsCalledThatAndIsNotQuoted(t *testing.T) {
	t.Parallel()
	vault := &vaultError{"token s3cret-7 has expired"}
	for name, connect := range map[string]func(*Config) error{
		"of a pool": func(c *Config) error {
			_, err := Open(t.Context(), *c)
			return err
		},
		"of a dialer": func(c *Config) error {
			_, err := NewDialer(*c).Dial(t.Context())
			return err
		},
		"of the second connection to a pooler": func(c *Config) error {
			before := c.BeforeConnect
			c.BeforeConnect = nil
			d := NewDialer(*c)
			conn, err := d.Connect(t.Context())
			require.NoError(t, err)
			defer Disconnect(conn)
			d.config.BeforeConnect = before
			_, err = d.probePooler(t.Context(), conn.PgConn())
			return d.connectError(t.Context(), err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cc, err := pgx.ParseConfig(pgtest.DSN(t))
			require.NoError(t, err)
			for _, cause := range []error{vault, fmt.Errorf("%w: %w", vault, &pgconn.PgError{Code: "28P01", Message: "s3cret-7"})} {
				err = connect(&Config{ConnConfig: cc, T: time.Minute, MaxSessions: 1, BeforeConnect: func(context.Context, *pgx.ConnConfig) error { return cause }})
				var before *session.BeforeConnectError
				require.ErrorAs(t, err, &before)
				require.ErrorIs(t, err, vault, "the program knows its own error")
				require.ErrorIs(t, err, session.ErrUnavailable, "another try can help")
				require.NotErrorIs(t, err, session.ErrRefused)
				assert.Nil(t, Refusal(err))
				assert.Contains(t, err.Error(), "BeforeConnect")
				assert.NotContains(t, err.Error(), "s3cret")
				assert.NotContains(t, err.Error(), "PostgreSQL unavailable")
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cc, err := pgx.ParseConfig("postgres://127.0.0.1:1/postgres")
	require.NoError(t, err)
	enough := errors.New("enough")
	_, err = Open(ctx, Config{ConnConfig: cc, T: time.Minute, MaxSessions: 1, BeforeConnect: func(ctx context.Context, _ *pgx.ConnConfig) error {
		cancel(enough)
		return ctx.Err()
	}})
	require.ErrorIs(t, err, enough)
	require.NotErrorIs(t, err, session.ErrUnavailable, "it is the caller who left")
}

type vaultError struct{ text string }

func (e *vaultError) Error() string { return e.text }

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
