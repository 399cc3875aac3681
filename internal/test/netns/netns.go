//go:build linux

// Package netns creates networks of network namespaces, for tests of a network that silently loses all its data. It
// needs root.
package netns

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// A Network is a client, a router and a server, each in a network namespace.
type Network struct{ Client, Router, Server string }

const serverAddr = "10.99.2.2"

// networks counts this process's networks, for their names.
var networks atomic.Int64

// New creates a network that is removed at the end of the test.
func New(t *testing.T) Network {
	t.Helper()
	if os.Geteuid() != 0 {
		notrun.Skip(t, "network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		notrun.Skip(t, "no program ip; Debian has it in the package iproute2")
	}
	number := networks.Add(1)
	name := func(role string) string { return fmt.Sprintf("pgl%s%d-%d", role, os.Getpid(), number) }
	n := Network{Client: name("c"), Router: name("r"), Server: name("s")}
	t.Cleanup(func() {
		for _, ns := range []string{n.Client, n.Router, n.Server} {
			_ = exec.CommandContext(context.Background(), "ip", "netns", "del", ns).Run()
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
				args[i] = n.Client
			case "R":
				args[i] = n.Router
			case "S":
				args[i] = n.Server
			}
		}
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			notrun.Skip(t, fmt.Sprintf("ip %s: %s", line, out))
		}
	}
	n.Forward(t, true)
	return n
}

// StartServer starts PostgreSQL in the server's namespace. Its DSN is for the client's namespace; local is the DSN for
// the namespace of this process.
func (n Network) StartServer(t *testing.T) (server *pgserver.Server, local string) {
	t.Helper()
	server = pgtest.StartServer(t, pgserver.Options{Host: serverAddr, CommandPrefix: []string{"ip", "netns", "exec", n.Server}})
	return server, fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres sslmode=disable", server.SocketDir(), server.Port())
}

// Forward heals the network, or turns it into a black hole that refuses nothing and delivers nothing.
func (n Network) Forward(t *testing.T, on bool) {
	t.Helper()
	value := "0"
	if on {
		value = "1"
	}
	out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", n.Router, "sh", "-c", "echo "+value+" > /proc/sys/net/ipv4/ip_forward").CombinedOutput()
	require.NoError(t, err, string(out))
}
