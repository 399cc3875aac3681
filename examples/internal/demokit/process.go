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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/proctest"
)

// A Node is the other side of a Process: what Main tells it.
type Node struct {
	Name   string
	Args   []string // of Start
	DSN    string   // of the demo's database
	Broken bool     // the demo runs with -break

	Log  *slog.Logger    `json:"-"` // which the demo reads: JSON on stderr
	Next <-chan struct{} `json:"-"` // has a value for each line of standard input
}

// serveNode runs serve in a process that Demo.Start started, and ends the process then. In another it does nothing. SIGTERM
// ends ctx.
func serveNode(serve func(context.Context, *Node) error) {
	proctest.Play("node", func(ctx context.Context, n *Node) error {
		next := make(chan struct{}, 10)
		go func() { // ends the process with the driver, for whatever reason: standard input ends then
			for in := bufio.NewScanner(os.Stdin); in.Scan(); {
				next <- struct{}{}
			}
			os.Exit(0)
		}()
		n.Next, n.Log = next, slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
		defer stop()
		return serve(ctx, n)
	})
}

// Listen listens, and tells the demo the address: the node is ready. A port of 0 is any free one.
func (n *Node) Listen(ctx context.Context, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		fmt.Printf("http://%s\n", listener.Addr())
	}
	return listener, err
}

// Run runs a program on a free loopback address until ctx ends. err is the error of its Open.
func (n *Node) Run(ctx context.Context, program interface {
	Serve(ctx context.Context, listener net.Listener) error
	Close()
}, err error,
) error {
	if err != nil {
		return err
	}
	defer program.Close()
	listener, err := n.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	return program.Serve(ctx, listener)
}

// Ready replaces Listen in a node that does not listen.
func (n *Node) Ready() { fmt.Println() }

// A Process is this program again, as a node. It logs in JSON.
type Process struct {
	*proctest.Process

	Name string
	URL  string
	demo *Demo
}

// Start starts a node on the demo's database, if there is one, and returns when it is ready.
func (d *Demo) Start(name string, args ...string) *Process {
	n := Node{Name: name, Args: args, Broken: d.Broken}
	if d.Database != nil {
		n.DSN = d.DSN
	}
	cmd := proctest.As(d, "node", n)
	// The process gets its own process group, so that Ctrl-C reaches only the demo. If the demo
	// dies while a process is stopped, POSIX sends the orphaned group SIGHUP and SIGCONT.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &Process{Process: proctest.Start(d, cmd), Name: name, demo: d}
	p.URL = p.Line()
	d.Say("%s is process %d%s", d.Paint(Cyan, name), p.PID(), strings.Replace(p.URL, "http", ", at http", 1))
	return p
}

// Do sends a request to the process: see the function Do.
func (p *Process) Do(ctx context.Context, method, path string, body any) Answer {
	return Do(ctx, method, p.URL+path, body)
}

// Terminate sends SIGTERM and waits for a clean exit.
func (p *Process) Terminate() {
	p.Signal(syscall.SIGTERM)
	require.Zero(p.demo, p.Wait(), "the exit code of %s", p.Name)
}

// Await waits for an entry of the log, as Entries finds it, and returns the first.
func (p *Process) Await(from int, message string, attrs ...string) (e Entry) {
	p.demo.Await(fmt.Sprintf("%q in the log of %s", message, p.Name), func() bool {
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
func (p *Process) Size() int { return len(p.Stderr.String()) }

// Entries returns the entries with a message and with these attributes, as "key=value", from a position on.
func (p *Process) Entries(from int, message string, attrs ...string) (found []Entry) {
line:
	for text := range strings.Lines(p.Stderr.String()[from:]) {
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
func (p *Process) Values(message, key string) (values []string) {
	for _, e := range p.Entries(0, message) {
		values = append(values, e.Text(key))
	}
	return values
}
