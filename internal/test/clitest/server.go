package clitest

import (
	"fmt"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// Serve starts serve locks, and returns its address.
func Serve(t *testing.T, env []string, args ...string) (*Program, string) {
	t.Helper()
	p := Start(t, env, append([]string{"serve", "locks", "--listen", "127.0.0.1:0"}, args...)...)
	return p, p.Match(&p.Stderr, `msg=serving.* address=(\S+)`)[1]
}

// LockServer serves a store in the test's process, and returns the environment with which the program uses it.
func LockServer(t *testing.T, store lease.Store, more ...string) (*httptest.Server, []string) {
	t.Helper()
	s := ServeConfig(t, leaseserver.Config{Store: store})
	return s, append(more, "PGLATCH_LOCK_SERVER="+s.URL)
}

// ServeConfig starts a lock server in the test's process.
func ServeConfig(t *testing.T, config leaseserver.Config) *httptest.Server {
	t.Helper()
	_, s := servetest.Serve(t, config)
	return s
}

// Reserve returns an address on which the programs of the test can listen, one after the other. Until the test ends, a
// socket that does not listen keeps its port, so that no other program gets it.
func Reserve(t *testing.T) string {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	unix.CloseOnExec(socket)
	t.Cleanup(func() { _ = unix.Close(socket) })
	require.NoError(t, unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)) // as every listener of Go sets it
	require.NoError(t, unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	address, err := unix.Getsockname(socket)
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", address.(*unix.SockaddrInet4).Port)
}

// A LeaseAnswer is a lease as the program prints it.
type LeaseAnswer struct {
	Lock           string `json:"lock"`
	OwnerID        string `json:"owner_id"`
	LeaseID        string `json:"lease_id"`
	FencingToken   uint64 `json:"fencing_token"`
	State          string `json:"state"`
	TTLRemainingMS int64  `json:"ttl_remaining_ms"`
	Metadata       map[string]string
}

// SilentHost is an address that accepts connections and never answers.
func SilentHost(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// Nowhere is a database that does not exist.
const Nowhere = "postgres://u:s3cret@127.0.0.1:1/d"
