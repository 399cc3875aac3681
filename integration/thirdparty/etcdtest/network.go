package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Network is a set of places in network namespaces of their own, on two switches. Places on
// different switches do not reach each other. Their packets are not refused; they do not arrive.
type Network struct{ router string }

// A Place is one network namespace of a Network.
type Place struct {
	IP        string
	namespace string
	port      string // of the switches
	network   *Network
}

// networks counts the networks of this process, for their names.
var networks atomic.Int64

// NewNetwork makes a network of so many places, all on the first switch. It needs root and the
// program ip. The caller must call remove, even after an error.
func NewNetwork(places int) (_ []*Place, remove func(), err error) {
	base := fmt.Sprintf("pgle%d-%d", os.Getpid(), networks.Add(1))
	n := &Network{router: base + "r"}
	namespaces := []string{n.router}
	remove = func() {
		for _, ns := range namespaces {
			_ = exec.Command("ip", "netns", "del", ns).Run() //nolint:noctx // short
		}
	}
	if err := run("netns", "add", n.router); err != nil {
		return nil, remove, err
	}
	for _, bridge := range []string{"br0", "br1"} {
		if err := runAll("-n "+n.router+" link add "+bridge+" type bridge", "-n "+n.router+" link set "+bridge+" up"); err != nil {
			return nil, remove, err
		}
	}
	var all []*Place
	for i := range places {
		p := &Place{IP: fmt.Sprintf("10.97.0.%d", i+1), namespace: fmt.Sprintf("%s-%d", base, i), port: fmt.Sprintf("p%d", i), network: n}
		namespaces = append(namespaces, p.namespace)
		err := runAll("netns add "+p.namespace, "-n "+p.namespace+" link set lo up",
			"link add e0 netns "+p.namespace+" type veth peer name "+p.port+" netns "+n.router,
			"-n "+p.namespace+" addr add "+p.IP+"/24 dev e0", "-n "+p.namespace+" link set e0 up",
			"-n "+n.router+" link set "+p.port+" master br0 up")
		if err != nil {
			return nil, remove, err
		}
		all = append(all, p)
	}
	return all, remove, nil
}

func runAll(lines ...string) error {
	for _, line := range lines {
		if err := run(strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

func run(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput() //nolint:noctx // short
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Move puts a place on the first or the second switch.
func (p *Place) Move(second bool) error {
	bridge := "br0"
	if second {
		bridge = "br1"
	}
	return run("-n", p.network.router, "link", "set", p.port, "master", bridge)
}

// Name identifies the place for a process that the test started: see At.
func (p *Place) Name() string { return p.namespace }

// At returns a place of a network that another process made. It can only dial from there.
func At(name string) *Place { return &Place{namespace: name} }

// Prefix is the command that runs a program in the place.
func (p *Place) Prefix() []string { return []string{"ip", "netns", "exec", p.namespace} }

// Dial connects from the place.
func (p *Place) Dial(ctx context.Context, address string) (net.Conn, error) {
	runtime.LockOSThread()
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer here.Close() //nolint:errcheck // only read
	there, err := os.Open("/var/run/netns/" + p.namespace)
	if err != nil {
		return nil, err
	}
	defer there.Close() //nolint:errcheck // only read
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNET); back != nil {
		return nil, errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return conn, err
}
