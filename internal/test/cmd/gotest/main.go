// Command gotest runs go test with its arguments, and reports the progress:
//
//	go run ./internal/test/cmd/gotest -race ./...
//
// It prints a line for each package when its tests have ended, with the output of each test that failed. When it has
// printed nothing for ten seconds, it names the tests that run. The exit code is that of go test. With -race it turns on cgo,
// which the race detector needs.
//
// If PGLATCH_TEST_RESULTS names a file, gotest appends a line for each test: its result (pass, fail or skip), its
// package, its name and its seconds, separated by tabs.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/pglatch/pglatch/internal/test/gobuild"
)

// quiet is the longest silence.
const quiet = 10 * time.Second

func main() {
	code, err := recorded(os.Getenv("PGLATCH_TEST_RESULTS"), func(results io.Writer) (int, error) {
		return run(cmp.Or(os.Getenv("GO"), "go"), os.Args[1:], os.Stdout, results, quiet)
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "gotest: %v\n", err)
	}
	os.Exit(code)
}

// recorded calls run with the results file. Several of these commands may append to it at once.
func recorded(name string, run func(results io.Writer) (int, error)) (code int, err error) {
	if name == "" {
		return run(io.Discard)
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1, err
	}
	code, err = run(file)
	if err = errors.Join(err, file.Close()); err != nil {
		code = max(code, 1)
	}
	return code, err
}

// run forwards signals, and ends when go test has ended.
func run(program string, args []string, out, results io.Writer, quiet time.Duration) (code int, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	first := 0
	if len(args) > 1 && args[0] == "-C" {
		first = 2 // it must precede all other flags
	}
	cmd := exec.Command(program, slices.Concat([]string{"test"}, args[:first], []string{"-json"}, args[first:])...) //nolint:noctx // the signals end it
	cmd.Stderr = os.Stderr
	if slices.Contains(args, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GORACE="+gobuild.RaceOptions+" "+os.Getenv("GORACE"))
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	lines := make(chan []byte)
	go read(pipe, lines)
	follow(&progress{out: out, results: results, start: time.Now()}, lines, quiet, func(s os.Signal) { _ = cmd.Process.Signal(s) }, signals)
	err = cmd.Wait()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

func read(from io.Reader, lines chan<- []byte) {
	defer close(lines)
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			lines <- line
		}
		if err != nil {
			return
		}
	}
}

func follow(p *progress, lines <-chan []byte, quiet time.Duration, forward func(os.Signal), signals <-chan os.Signal) {
	silence := time.NewTimer(quiet)
	defer silence.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				p.print("%s", line)
				silence.Reset(quiet)
			} else if p.see(e, time.Now()) {
				silence.Reset(quiet)
			}
		case <-silence.C:
			p.tell(time.Now())
			silence.Reset(quiet)
		case s := <-signals:
			forward(s)
		}
	}
}
