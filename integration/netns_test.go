//go:build integration

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// A network is a client, a router and a server in network namespaces of their own.
type network struct{ client, router, server string }

const serverAddr = "10.99.2.2"

// networks counts those of this process, for their names.
var networks atomic.Int64

func newNetwork(t *testing.T) network {
	t.Helper()
	if os.Geteuid() != 0 {
		notRun(t, "network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		notRun(t, "no program ip; Debian has it in the package iproute2")
	}
	number := networks.Add(1)
	name := func(role string) string { return fmt.Sprintf("pgl%s%d-%d", role, os.Getpid(), number) }
	n := network{client: name("c"), router: name("r"), server: name("s")}
	t.Cleanup(func() {
		for _, ns := range []string{n.client, n.router, n.server} {
			_ = exec.Command("ip", "netns", "del", ns).Run()
		}
	})
	for _, line := range []string{
		"netns add C", "netns add R", "netns add S",
		"-n C link set lo up", "-n R link set lo up", "-n S link set lo up",
		"link add c0 netns C type veth peer name c1 netns R",
		"link add s0 netns S type veth peer name s1 netns R",
		"-n C addr add 10.99.1.2/24 dev c0", "-n R addr add 10.99.1.1/24 dev c1",
		"-n S addr add " + serverAddr + "/24 dev s0", "-n R addr add 10.99.2.1/24 dev s1",
		"-n C link set c0 up", "-n R link set c1 up", "-n S link set s0 up", "-n R link set s1 up",
		"-n C route add default via 10.99.1.1", "-n S route add default via 10.99.2.1",
	} {
		args := strings.Fields(line)
		for i, arg := range args {
			switch arg {
			case "C":
				args[i] = n.client
			case "R":
				args[i] = n.router
			case "S":
				args[i] = n.server
			}
		}
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			notRun(t, fmt.Sprintf("ip %s: %s", line, out))
		}
	}
	n.forward(t, true)
	return n
}

// forward heals the network, or makes a black hole of it: nothing is refused, and
// nothing arrives.
func (n network) forward(t *testing.T, on bool) {
	t.Helper()
	value := "0"
	if on {
		value = "1"
	}
	out, err := exec.Command("ip", "netns", "exec", n.router, "sh", "-c", "echo "+value+" > /proc/sys/net/ipv4/ip_forward").CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestABlackHoleEndsALockForEverAlsoAfterItHeals(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		n := newNetwork(t)
		server := pgtest.StartServer(t, pgserver.Options{Host: serverAddr, CommandPrefix: []string{"ip", "netns", "exec", n.server}})
		local := fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable", server.SocketDir(), server.Port())
		holder := start(t, "hold", server.DSN(""), "ip", "netns", "exec", n.client)
		holder.says("held")
		other := open(t, local, childTTL)

		n.forward(t, false)
		lock := acquire(t, other, agents.ID(1))
		assert.Contains(t, holder.says("lost"), "no answer from the server")
		n.forward(t, true)
		judge := connect(t, local)
		for range 10 { // a second
			holder.says("not held")
			granted, _ := locks(t, judge)
			assert.Equal(t, 1, granted)
		}
		assert.NoError(t, lock.Context().Err())
		require.NoError(t, lock.Release())
		holder.says("not held")
		granted, waiting := locks(t, judge)
		assert.Zero(t, granted+waiting)
	})
}
