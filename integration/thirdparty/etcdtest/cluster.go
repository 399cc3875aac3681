package etcdtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// hosts counts those of FreeAddress.
var hosts atomic.Int64

// FreeAddress returns a port that nobody listens on now, of a loopback address that, on Linux, no
// other test has. So it stays free while a process that listens on it is killed and started again.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	host, port := "127.0.0.1", "0"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%200, os.Getpid()/200%250, 1+hosts.Add(1))
		port = "12379" // no port that the system gives to anybody
	}
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", net.JoinHostPort(host, port))
	require.NoError(tb, err)
	require.NoError(tb, l.Close())
	return l.Addr().String()
}

// FreeURL returns the URL of a FreeAddress.
func FreeURL(tb testing.TB) string {
	tb.Helper()
	return "http://" + FreeAddress(tb)
}

// StartCluster starts size members, m0 and so on, on loopback addresses. They keep their data in
// dir.
func StartCluster(tb testing.TB, dir string, size int) (members []*Process) {
	tb.Helper()
	var all []Member
	var peers []string
	for i := range size {
		name := fmt.Sprintf("m%d", i+1)
		m := Member{Name: name, Dir: filepath.Join(dir, name), Peers: FreeURL(tb), Clients: FreeURL(tb)}
		all, peers = append(all, m), append(peers, name+"="+m.Peers)
	}
	for _, m := range all {
		m.Cluster = strings.Join(peers, ",")
		members = append(members, Start(tb, m))
	}
	return members
}
