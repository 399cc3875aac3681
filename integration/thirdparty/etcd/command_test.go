package etcd_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// command builds pglatch-etcd.
func command(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "pglatch-etcd")
	require.NoError(t, gobuild.Program(t.Context(), "../../../cmd/pglatch-etcd", program))
	return program
}

func TestTheCommandServesACluster(t *testing.T) {
	t.Parallel()
	program, dir := command(t), filepath.Join(t.TempDir(), "etcd")
	address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: dir, TLS: true, NoFsync: true, Heartbeat: quick})
	require.NoError(t, err)
	t.Cleanup(stop)
	host, certificate := strings.TrimPrefix(address, "https://"), filepath.Join(dir, "fixtures", "client", "cert.pem")
	secret := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(secret, []byte("pa55\n"), 0o600))

	withUser(t, raw(t, clientv3.Config{Endpoints: []string{address}, TLS: trusting(t, certificate)}))
	p := proctest.Start(t, proctest.Command(t, program, "serve", "locks", "-v", "--listen", "127.0.0.1:0",
		"--store", "etcd://"+host+"?ca="+certificate+"&user=locks&password_file="+secret))
	served := p.Match(&p.Stderr, `msg=serving address=(\S+)`)[1]
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://" + served}})
	require.NoError(t, err)
	defer client.Close()
	l, err := client.Acquire(t.Context(), lease.AcquireRequest{Name: "brief", Holder: "a", TTL: 1500 * time.Millisecond})
	require.NoError(t, err)
	assert.Greater(t, l.Remaining, 1900*time.Millisecond, "whole seconds, rounded up")
	l, err = client.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Minute})
	require.NoError(t, err)
	_, err = client.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Minute})
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, client.Release(t.Context(), l.Claim))
	p.Signal(syscall.SIGTERM)
	require.Zero(t, p.Wait())
	assert.Contains(t, p.Stderr.String(), "etcd:https://"+host)
	assert.NotContains(t, p.Stderr.String(), "pa55")
}

// trusting trusts one certificate.
func trusting(t *testing.T, file string) *tls.Config {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(content))
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// withUser turns authentication on: locks has the right to the prefix, nobody has none.
func withUser(t *testing.T, root *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	for _, f := range []func() error{
		func() error { _, err := root.RoleAdd(ctx, "root"); return err },
		func() error { _, err := root.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, "locks"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "locks", etcd.DefaultPrefix, clientv3.GetPrefixRangeEnd(etcd.DefaultPrefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserAdd(ctx, "locks", "pa55"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "locks", "locks"); return err },
		func() error { _, err := root.UserAdd(ctx, "nobody", "pa55"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		require.NoError(t, f())
	}
}
