//go:build linux

package electiontest

import (
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader"
)

// A parent's commands to its children.
const (
	tellStepDown = "step down"
	tellStop     = "stop"
)

// A Node is a candidate in a separate process.
type Node struct {
	Job   Job
	Proxy *faultproxy.Proxy // its connection to the server; nil = none
	// Prefix precedes the command line. It must exec the command, as "ip netns exec x" does.
	Prefix []string

	t       *testing.T
	process *proctest.Process
	heard   chan struct{} // closed when the log has all that the process said
	log     *log
}

// Through puts a new proxy for the node in front of the server of a URL, and returns the URL by
// which the node reaches it.
func (n *Node) Through(server string) string {
	n.t.Helper()
	u, err := url.Parse(server)
	require.NoError(n.t, err)
	n.Proxy, err = faultproxy.New(n.t.Context(), u.Host)
	require.NoError(n.t, err)
	n.t.Cleanup(n.Proxy.Close)
	through, err := n.Proxy.URL(server)
	require.NoError(n.t, err)
	return through
}

// NewNode returns a node outside of any game. Its process is not started.
func NewNode(t *testing.T, job Job) *Node {
	t.Helper()
	return &Node{t: t, Job: job, log: newLog()}
}

// Start starts the process, after the previous one has ended.
func (n *Node) Start() {
	n.t.Helper()
	cmd := proctest.As(n.t, candidate, n.Job, n.Prefix...)
	if n.Job.Busy { // on one processor, where no other goroutine runs beside the one that checks
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1")
	}
	n.log.restart()
	process, heard := proctest.Start(n.t, cmd), make(chan struct{})
	n.process, n.heard = process, heard
	go func() {
		defer close(heard)
		for line := range process.Lines() {
			n.log.add(line)
		}
		n.log.end()
	}()
}

// Signal sends a signal to the process.
func (n *Node) Signal(s os.Signal) {
	n.t.Helper()
	n.process.Signal(s)
}

// Kill ends the process like kill -9.
func (n *Node) Kill() {
	n.t.Helper()
	n.process.Kill()
	<-n.heard
}

// Stop ends the process in good order.
func (n *Node) Stop() {
	n.t.Helper()
	n.AskToStop()
	n.Exit()
}

// AskToStop asks the process to end in good order.
func (n *Node) AskToStop() {
	n.t.Helper()
	n.tell(tellStop)
}

func (n *Node) tell(command string) {
	n.t.Helper()
	n.process.Tell(command)
}

// Exit waits for the process to end in good order.
func (n *Node) Exit() {
	n.t.Helper()
	require.Zero(n.t, n.process.Wait(), "node %d", n.Job.Node)
	<-n.heard
}

// Said counts the lines of the node's log that begin with one of the words.
func (n *Node) Said(words ...string) (count int) {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	for _, word := range words {
		count += n.log.said[word]
	}
	return count
}

// PID is the process id of the node's last process.
func (n *Node) PID() int { return n.process.PID() }

// Term is the node's last reported term.
func (n *Node) Term() leader.Term {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	return n.log.events.Term
}

// LastError is the node's last reported error.
func (n *Node) LastError() string {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	return n.log.failure
}

// standing counts how often the node found another leader, or began to lead.
func (n *Node) standing() int { return n.Said("follows", "acquired", "recovered") }

// awaitStanding waits until the node takes part again: see standing. A leader reports nothing more.
func (n *Node) awaitStanding(before int, leads func(node int) bool) {
	n.t.Helper()
	timeout := time.After(Patience)
	for {
		n.log.mu.Lock()
		changed, ended, believes := n.log.changed, n.log.ended, n.log.events.Leads
		n.log.mu.Unlock()
		if n.standing() > before || believes && leads(n.Job.Node) {
			return
		}
		require.False(n.t, ended, "node %d ended; its last error: %s; what must not be: %v", n.Job.Node, n.LastError(), n.log.faulty)
		select {
		case <-changed:
		case <-time.After(Retry):
		case <-timeout:
			require.Fail(n.t, "a node does not take part again", "node %d", n.Job.Node)
		}
	}
}
