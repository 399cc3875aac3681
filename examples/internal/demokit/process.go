package demokit

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// The environment variables that turn this program into a Node.
const (
	nameVariable = "PGLATCH_DEMO_NODE"
	dsnVariable  = "PGLATCH_DEMO_DSN"
)

// A Node is the other side of a Process: what Main tells it.
type Node struct {
	Name string
	DSN  string          // of the demo's database
	Log  *slog.Logger    // which the demo reads: JSON on stderr
	Next <-chan struct{} // has a value for each line of standard input
}

// ServeNode runs serve in a process that Start started, and ends the process then. In another it does nothing. SIGTERM
// ends ctx.
func ServeNode(serve func(context.Context, *Node) error) {
	name := os.Getenv(nameVariable)
	if name == "" {
		return
	}
	next := make(chan struct{}, 10)
	go func() { // ends the process with the driver, for whatever reason: standard input ends then
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			next <- struct{}{}
		}
		os.Exit(0)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	exit(serve(ctx, &Node{name, os.Getenv(dsnVariable), slog.New(slog.NewJSONHandler(os.Stderr, nil)), next}))
	os.Exit(0)
}

// Listen listens, and tells the demo the address: the node is ready. A port of 0 is any free one.
func (n *Node) Listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		fmt.Printf("http://%s\n", listener.Addr())
	}
	return listener, err
}

// Ready replaces Listen in a node that does not listen.
func (n *Node) Ready() { fmt.Println() }

// A Process is this program again, as a node.
type Process struct {
	*proctest.Process
	Log

	Name string
	URL  string

	tb testing.TB
}

// A Log is a log in JSON.
type Log struct{ *capture.Text }

// Start starts a node of a demo or a test, and returns when it is ready. env tells it more than its name.
func Start(tb testing.TB, dsn, name string, env ...string) *Process {
	tb.Helper()
	cmd := proctest.Self(tb, append(env, nameVariable+"="+name, dsnVariable+"="+dsn)...)
	// The process gets its own process group, so that Ctrl-C reaches only the demo. If the demo
	// dies while a process is stopped, POSIX sends the orphaned group SIGHUP and SIGCONT.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &Process{Process: proctest.Start(tb, cmd), Name: name, tb: tb}
	p.Log.Text, p.URL = &p.Stderr, p.Line()
	return p
}

// Start starts a node on the demo's database, if there is one.
func (d *Demo) Start(name string, env ...string) *Process {
	dsn := ""
	if d.Database != nil {
		dsn = d.DSN
	}
	p := Start(d, dsn, name, env...)
	d.Say("%s is process %d%s", d.Paint(Cyan, name), p.PID(), strings.Replace(p.URL, "http", ", at http", 1))
	return p
}

// Terminate sends SIGTERM and waits for a clean exit.
func (p *Process) Terminate() {
	p.Signal(syscall.SIGTERM)
	require.Zero(p.tb, p.Wait(), "the exit code of %s", p.Name)
}

// Await waits for an entry of the log, as Entries finds it, and returns the first.
func (p *Process) Await(from int, message string, attrs ...string) (e Entry) {
	waitFor(p.tb, fmt.Sprintf("%q in the log of %s", message, p.Name), func() bool {
		if found := p.Entries(from, message, attrs...); len(found) > 0 {
			e = found[0]
		}
		return e != nil
	})
	return e
}

// An Entry is a line of a process's log.
type Entry map[string]any

// Text returns the value of a key.
func (e Entry) Text(key string) string { return fmt.Sprint(e[key]) }

// Time returns when the process logged the entry.
func (e Entry) Time() time.Time { return Must(time.Parse(time.RFC3339Nano, e.Text("time"))) }

// Size returns the position in the log at which future entries begin.
func (l Log) Size() int { return len(l.String()) }

// Entries returns the entries with a message and with these attributes, as "key=value", from a position on.
func (l Log) Entries(from int, message string, attrs ...string) (found []Entry) {
line:
	for text := range strings.Lines(l.String()[from:]) {
		var e Entry
		if !strings.Contains(text, message) || json.Unmarshal([]byte(text), &e) != nil || e.Text("msg") != message {
			continue
		}
		for _, attr := range attrs {
			if key, value, _ := strings.Cut(attr, "="); e.Text(key) != value {
				continue line
			}
		}
		found = append(found, e)
	}
	return found
}

// Values returns the value of a key in each entry with a message, in order.
func (l Log) Values(message, key string) (values []string) {
	for _, e := range l.Entries(0, message) {
		values = append(values, e.Text(key))
	}
	return values
}
