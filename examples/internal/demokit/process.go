package demokit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pglatch/pglatch/internal/test/capture"
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
	Next <-chan struct{} // receives a value for each Process.Next
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
	Name string
	URL  string

	Log

	cmd   *exec.Cmd
	stdin io.Writer // ends at the latest when the demo ends
}

// A Log collects a log in JSON.
type Log struct{ capture.Text }

// Start starts a process and returns when it is ready. env tells it more than its name.
func (d *Demo) Start(ctx context.Context, name string, env ...string) *Process {
	p := &Process{Name: name, cmd: exec.CommandContext(ctx, Must(os.Executable()))}
	p.cmd.Env = append(append(os.Environ(), nameVariable+"="+name, dsnVariable+"="+d.DSN), env...)
	p.cmd.Stderr = &p.Log
	// The process gets its own process group, so that Ctrl-C reaches only the demo. If the demo
	// dies while a process is stopped, POSIX sends the orphaned group SIGHUP and SIGCONT.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.stdin = Must(p.cmd.StdinPipe())
	stdout := Must(p.cmd.StdoutPipe())
	Check(p.cmd.Start())
	d.processes = append(d.processes, p)
	d.Defer(p.Kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		Check(fmt.Errorf("%s does not start: %w", name, err))
	}
	p.URL = strings.TrimSpace(line)
	d.Say("%s is process %d%s", d.Paint(Cyan, name), p.PID(), strings.Replace(p.URL, "http", ", at http", 1))
	return p
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill sends kill -9 and returns when the process is gone.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.cmd.Wait() // "signal: killed"
	return nil
}

// Terminate sends SIGTERM and waits. It returns an error if the process did not exit cleanly.
func (p *Process) Terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.cmd.Wait()
}

// Stop sends kill -STOP.
func (p *Process) Stop() { Check(p.cmd.Process.Signal(syscall.SIGSTOP)) }

// Resume sends kill -CONT.
func (p *Process) Resume() { Check(p.cmd.Process.Signal(syscall.SIGCONT)) }

// Next lets the node take a value from Node.Next.
func (p *Process) Next() { Must(io.WriteString(p.stdin, "\n")) }

// An Entry is a line of a process's log.
type Entry map[string]any

// Text returns the value of a key.
func (e Entry) Text(key string) string { return fmt.Sprint(e[key]) }

// Time returns when the process logged the entry.
func (e Entry) Time() time.Time { return Must(time.Parse(time.RFC3339Nano, e.Text("time"))) }

// Size returns the position in the log at which future entries begin.
func (l *Log) Size() int { return len(l.String()) }

// Entries returns the entries with a message and with these attributes, as "key=value", from a position on.
func (l *Log) Entries(from int, message string, attrs ...string) (found []Entry) {
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
func (l *Log) Values(message, key string) (values []string) {
	for _, e := range l.Entries(0, message) {
		values = append(values, e.Text(key))
	}
	return values
}

// Await waits for such an entry, and returns the first.
func (l *Log) Await(ctx context.Context, from int, message string, attrs ...string) (e Entry) {
	Await(ctx, fmt.Sprintf("%q in a log", message), func() bool {
		found := l.Entries(from, message, attrs...)
		if len(found) > 0 {
			e = found[0]
		}
		return e != nil
	})
	return e
}

// logs returns the last 20 lines of each process's log.
func (d *Demo) logs() string {
	var b strings.Builder
	for _, p := range d.processes {
		lines := strings.SplitAfter(p.String(), "\n")
		fmt.Fprintf(&b, "the end of the log of %s, process %d:\n%s\n", p.Name, p.PID(), strings.Join(lines[max(0, len(lines)-21):], ""))
	}
	return b.String()
}
