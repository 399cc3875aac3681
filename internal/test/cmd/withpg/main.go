// Command withpg runs a command with a PostgreSQL server for tests:
//
//	go run ./internal/test/cmd/withpg -- go test ./...
//
// It starts one server, hands its URL to the command in PGLATCH_TEST_DATABASE_URL, and removes it when the
// command has ended. If that variable or TEST_DATABASE_URL is set, it starts no server. The exit code is that
// of the command, or 128 and the signal's number; 125 means that the server could not be started or removed.
// SIGINT, SIGTERM and SIGHUP are forwarded to the command.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

const (
	urlVariable = "PGLATCH_TEST_DATABASE_URL"
	ownFailure  = 125
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: withpg -- command [argument ...]")
		os.Exit(ownFailure)
	}
	code, err := withServer(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "withpg: %v\n", err)
	}
	os.Exit(code)
}

// withServer runs the command between the start and the end of a server.
func withServer(args []string) (code int, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if cmp.Or(os.Getenv(urlVariable), os.Getenv("TEST_DATABASE_URL")) != "" {
		return execute(args, nil, signals)
	}
	server, err := pgserver.Start(context.Background(), pgserver.Options{})
	if err != nil {
		return ownFailure, err
	}
	code, err = execute(args, []string{urlVariable + "=" + server.DSN("")}, signals)
	if closeErr := server.Close(); closeErr != nil {
		return cmp.Or(code, ownFailure), errors.Join(err, closeErr)
	}
	return code, err
}

// execute runs the command, forwards signals to it, and returns its exit code.
func execute(args, env []string, signals <-chan os.Signal) (code int, err error) {
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // the signals end it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return ownFailure, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may have ended
		case err := <-done:
			return exitCode(err)
		}
	}
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			return ownFailure, err
		}
		return 0, nil
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
