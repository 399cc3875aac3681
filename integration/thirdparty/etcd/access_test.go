package etcd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

func TestNobodyThereIsBusyInBoundedTime(t *testing.T) {
	t.Parallel()
	began := time.Now()
	_, err := etcd.Open(t.Context(), etcd.Config{Client: clientv3.Config{Endpoints: []string{etcdtest.FreeURL(t)}}, Timeout: 200 * time.Millisecond})
	require.ErrorIs(t, err, lease.ErrBusy)
	assert.Less(t, time.Since(began), patience/2)
	_, err = etcd.Open(t.Context(), etcd.Config{})
	require.ErrorIs(t, err, lease.ErrInvalid)
}

func TestAClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	s := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err := s.Get(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrClosed)
}

// An authority signs certificates.
type authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.file, _ = a.sign(t, "authority", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign makes a certificate for any use on the loopback, and returns its files.
func (a *authority) sign(t *testing.T, name string, c *x509.Certificate) (file, key string) {
	t.Helper()
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signer, signing := a.certificate, a.key
	if signer == nil {
		signer, signing = c, private
	}
	der, err := x509.CreateCertificate(rand.Reader, c, signer, private.Public(), signing)
	require.NoError(t, err)
	if a.certificate == nil {
		a.key = private
		a.certificate, err = x509.ParseCertificate(der)
		require.NoError(t, err)
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	write := func(kind, file string, content []byte) string {
		file = filepath.Join(a.dir, file)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
		return file
	}
	return write("CERTIFICATE", name+".pem", der), write("PRIVATE KEY", name+".key", bytes)
}

// client is how one with a certificate speaks TLS.
func (a *authority) client(t *testing.T, certificate, key string) *tls.Config {
	t.Helper()
	c := trusting(t, a.file)
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		require.NoError(t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func TestOnlyAClientWithACertificateOfTheAuthorityAndAUserWithTheRightToThePrefixAloneIsServed(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	m := etcdtest.Member{NoFsync: true, Authority: a.file}
	m.Certificate, m.Key = a.sign(t, "member", &x509.Certificate{})
	address := serve(t, m)
	certificate, key := a.sign(t, "client", &x509.Certificate{})
	good := a.client(t, certificate, key)
	withUser(t, raw(t, clientv3.Config{Endpoints: []string{address}, TLS: good}))
	as := func(user, password string, transport *tls.Config) func(*etcd.Config) {
		return func(c *etcd.Config) {
			c.Client = clientv3.Config{Endpoints: []string{address}, Username: user, Password: password, TLS: transport}
		}
	}
	s := open(t, as("locks", "pa55", good))
	ctx := t.Context()
	l, err := s.Acquire(ctx, lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute, MinHold: time.Minute, LockDelay: time.Minute})
	require.NoError(t, err)
	_, err = s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: 2 * time.Minute})
	require.NoError(t, err)
	r, err := s.Get(ctx, "job")
	require.NoError(t, err)
	assert.Positive(t, r.Remaining)
	require.NoError(t, s.Release(ctx, l.Claim))
	_, err = s.Sweep(ctx, lease.SweepRequest{})
	require.NoError(t, err)
	require.NoError(t, s.Health(ctx))
	heard, _ := listen(t, s)
	require.NoError(t, s.Send(t.Context(), []string{"hear"}))
	assert.Equal(t, "hear", <-heard)

	elsewhere := func(configure func(*etcd.Config)) func(*etcd.Config) {
		return func(c *etcd.Config) {
			configure(c)
			c.Prefix = "elsewhere/"
		}
	}
	foreign, foreignKey := other.sign(t, "client", &x509.Certificate{})
	for name, c := range map[string]struct {
		configure func(*etcd.Config)
		want      error
	}{
		"no certificate":           {as("locks", "pa55", a.client(t, "", "")), lease.ErrBusy},
		"one of another authority": {as("locks", "pa55", a.client(t, foreign, foreignKey)), lease.ErrBusy},
		"another is trusted":       {as("locks", "pa55", other.client(t, certificate, key)), lease.ErrBusy},
		"a wrong password":         {as("locks", "wrong", good), etcd.ErrDenied},
		"no right":                 {as("nobody", "pa55", good), etcd.ErrDenied},
		"no user":                  {as("", "", good), etcd.ErrDenied},
		"another prefix":           {elsewhere(as("locks", "pa55", good)), etcd.ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := etcd.Config{}
			c.configure(&config)
			config.Timeout = patience
			if c.want == lease.ErrBusy { //nolint:errorlint // which comes after it
				config.Timeout = 5 * time.Second
			}
			_, err := etcd.Open(t.Context(), config)
			require.ErrorIs(t, err, c.want)
			if c.want == etcd.ErrDenied { //nolint:errorlint // which comes after it
				require.ErrorIs(t, err, lease.ErrNotReady)
			}
			assert.NotContains(t, err.Error(), "pa55")
		})
	}
}

func TestAUserWhoseTokenIsNotValidAnyMoreGetsAnother(t *testing.T) {
	t.Parallel()
	address := serve(t, etcdtest.Member{NoFsync: true, AuthTTL: 1})
	root := raw(t, clientv3.Config{Endpoints: []string{address}})
	withUser(t, root)
	asRoot := raw(t, clientv3.Config{Endpoints: []string{address}, Username: "root", Password: "secret"})
	var d dialer
	s := open(t, func(c *etcd.Config) {
		c.Client.Username, c.Client.Password = "locks", "pa55"
		c.Client.DialOptions = append(c.Client.DialOptions, grpc.WithContextDialer(d.dial))
	}, address)
	l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "held", Holder: "a", TTL: time.Hour, LockDelay: time.Second})
	require.NoError(t, err)
	heard, _ := listen(t, s)
	works := func(message string) {
		t.Helper()
		_, err := s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: time.Hour})
		require.NoError(t, err)
		_, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: "job-" + message, Holder: "a", TTL: 2 * time.Minute})
		require.NoError(t, err)
		require.NoError(t, s.Send(t.Context(), []string{message}))
		assert.Equal(t, message, <-heard)
	}
	works("at first")

	// The rights change: tokens of before are too old.
	_, err = asRoot.RoleAdd(t.Context(), "more")
	require.NoError(t, err)
	works("after a change of the rights")

	// A token lasts a second from its last use. One that nobody used tells when the store's has ended.
	eventually(t, func() bool {
		r, err := root.Authenticate(t.Context(), "locks", "pa55")
		require.NoError(t, err)
		<-time.After(1500 * time.Millisecond) // the store is idle, too
		old := metadata.AppendToOutgoingContext(t.Context(), "token", r.Token)
		_, err = etcdserverpb.NewKVClient(root.ActiveConnection()).Range(old, &etcdserverpb.RangeRequest{Key: []byte(etcd.DefaultPrefix)})
		return err != nil
	}, "tokens last for ever")
	works("after the token's time")
	d.set(true)
	d.set(false)
	works("on another connection")

	_, err = asRoot.UserRevokeRole(t.Context(), "locks", "locks")
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
	require.ErrorIs(t, err, etcd.ErrDenied)
	require.ErrorIs(t, s.Health(t.Context()), etcd.ErrDenied)
}
