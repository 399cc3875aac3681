//go:build integration

package election

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/faultproxy"
	"github.com/pglatch/pglatch/leader"
)

// A node is a candidate in a process of its own, which reaches its election
// through a proxy of its own.
type node struct {
	t       *testing.T
	job     job
	proxy   *faultproxy.Proxy
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stopped chan struct{} // closed when the process has said its last
	log     *log
}

// A log is what a process said.
type log struct {
	mu      sync.Mutex
	changed chan struct{}
	said    map[string]int // lines by first word
	ended   bool

	leads  bool        // Acquired, and not yet Released or Lost
	term   leader.Term // the last
	faulty []string

	refused, committed, hidden int // writes in defiance of an ended term
}

// newNode makes a node and does not start its process.
func newNode(t *testing.T, j job) *node {
	t.Helper()
	u, err := url.Parse(j.DSN)
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), u.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	j.DSN, err = proxy.URL(j.DSN)
	require.NoError(t, err)
	return &node{t: t, job: j, proxy: proxy, log: &log{said: make(map[string]int), changed: make(chan struct{})}}
}

// start starts the process, after the one before has ended.
func (n *node) start() {
	n.t.Helper()
	text, err := json.Marshal(n.job)
	require.NoError(n.t, err)
	n.cmd = exec.CommandContext(n.t.Context(), os.Args[0])
	n.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	if n.job.Busy { // on one processor, where nothing runs beside the goroutine that looks
		n.cmd.Env = append(n.cmd.Env, "GOMAXPROCS=1")
	}
	n.cmd.Stderr = os.Stderr
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.stdin, err = n.cmd.StdinPipe()
	require.NoError(n.t, err)
	out, err := n.cmd.StdoutPipe()
	require.NoError(n.t, err)
	require.NoError(n.t, n.cmd.Start())
	cmd, stopped := n.cmd, make(chan struct{})
	n.stopped = stopped
	n.log.restart()
	go func() {
		defer close(stopped)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			n.log.add(scanner.Text())
		}
		n.log.end()
	}()
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-stopped
		_ = cmd.Wait()
	})
}

func (n *node) signal(s os.Signal) {
	n.t.Helper()
	require.NoError(n.t, n.cmd.Process.Signal(s))
}

// kill ends the process as kill -9 does.
func (n *node) kill() {
	n.t.Helper()
	n.signal(syscall.SIGKILL)
	<-n.stopped
	_ = n.cmd.Wait()
}

func (n *node) tell(command string) {
	n.t.Helper()
	_, err := fmt.Fprintln(n.stdin, command)
	require.NoError(n.t, err)
}

// exit waits for the process to end in good order.
func (n *node) exit() {
	n.t.Helper()
	receiveEnd(n.t, n.stopped)
	require.NoError(n.t, n.cmd.Wait(), "node %d", n.job.Node)
}

func receiveEnd(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		require.Fail(t, "a process did not end")
	}
}

// standing counts how often the node found that somebody else leads, or began to
// lead.
func (n *node) standing() int {
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	return n.log.said["follows"] + n.log.said["acquired"] + n.log.said["recovered"]
}

// awaitStanding waits until the node takes part again: see standing. A leader has
// nothing more to say.
func (n *node) awaitStanding(before int, leads func(node int) bool) {
	n.t.Helper()
	timeout := time.After(patience)
	for {
		n.log.mu.Lock()
		changed, ended, believes := n.log.changed, n.log.ended, n.log.leads
		n.log.mu.Unlock()
		if n.standing() > before || believes && leads(n.job.Node) {
			return
		}
		require.False(n.t, ended, "node %d ended", n.job.Node)
		select {
		case <-changed:
		case <-time.After(retry):
		case <-timeout:
			require.Fail(n.t, "a node does not take part again", "node %d", n.job.Node)
		}
	}
}

func (l *log) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads, l.ended = false, false
}

func (l *log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.changed)
	l.changed = make(chan struct{})
}

// add takes a line, and checks the order of events.
func (l *log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	word, rest, _ := strings.Cut(line, " ")
	l.said[word]++
	wrong := ""
	switch word {
	case "acquired":
		if l.leads || !l.rise(rest) {
			wrong = "leads already, or the term does not rise"
		}
		l.leads = true
	case "recovered":
		if !l.leads || !l.rise(rest) {
			wrong = "did not lead, or the term does not rise"
		}
	case "released", "lost":
		if !l.leads {
			wrong = "did not lead"
		}
		l.leads = false
	case "stopped":
		if l.leads {
			wrong = "leads still"
		}
	case "defied":
		var refused, committed, hidden int
		if _, err := fmt.Sscan(rest, &refused, &committed, &hidden); err != nil {
			wrong = err.Error()
		}
		l.refused, l.committed, l.hidden = l.refused+refused, l.committed+committed, l.hidden+hidden
	case "follows", "error":
	default: // a failure, a panic, or a data race
		wrong = "?"
	}
	if wrong != "" {
		l.faulty = append(l.faulty, fmt.Sprintf("%s, after term %v: %s", line, l.term, wrong))
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// rise notes a term and reports whether it is later than the one before.
func (l *log) rise(text string) bool {
	term, err := leader.ParseTerm(text)
	rises := err == nil && term.Compare(l.term) > 0
	l.term = term
	return rises
}
