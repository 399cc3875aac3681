package clitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pglatch/pglatch/internal/test/await"
)

// command returns a program in the directory and the environment of the script. Its standard input is empty.
func (s *script) command(ctx context.Context, name string, args []string) *exec.Cmd {
	if name == program {
		name = Binary
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Dir = s.environ(), s.MkAbs(".")
	return cmd
}

// A result is what a program that has ended leaves behind.
type result struct {
	stdout, stderr string
	code           int
}

// run runs a program to its end.
func (s *script) run(name string, args []string) result {
	if name == "get" {
		return s.get(args[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Soon)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := s.command(ctx, name, args)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, await.Soon
	err := cmd.Run()
	r := result{stdout: stdout.String(), stderr: stderr.String()}
	if ctx.Err() != nil || cmd.ProcessState == nil {
		s.show(r)
		s.Fatalf("%s %q: %v", name, args, errors.Join(ctx.Err(), err))
	}
	r.code = cmd.ProcessState.ExitCode()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		r.code = 128 + int(status.Signal())
	}
	assert.NotContains(s.t, r.stderr, "DATA RACE")
	return r
}

// get fetches a URL, as if it were a program. It exits with 0, or with the status if that is not 200.
func (s *script) get(url string) (r result) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, http.NoBody)
	s.Check(err)
	response, err := http.DefaultClient.Do(request)
	s.Check(err)
	defer response.Body.Close() //nolint:errcheck // only read from
	body, err := io.ReadAll(response.Body)
	s.Check(err)
	r = result{stdout: string(body), code: response.StatusCode}
	if r.code == http.StatusOK {
		r.code = 0
	}
	return r
}

// show makes the output of a program that of the script's command.
func (s *script) show(r result) {
	_, _ = io.WriteString(s.Stdout(), r.stdout)
	_, _ = io.WriteString(s.Stderr(), r.stderr)
}

func (s *script) expect(code string, r result) {
	s.show(r)
	if strconv.Itoa(r.code) != code {
		s.Fatalf("exit code %d, want %s", r.code, code)
	}
}

func (s *script) pglatch(args []string) { s.expect("0", s.run(program, args)) }

func (s *script) exits(args []string) { s.expect(args[0], s.run(args[1], args[2:])) }

func (s *script) misuse(args []string) {
	r := s.run(program, args[1:])
	s.expect("64", r)
	if r.stdout != "" || !strings.HasPrefix(r.stderr, "pglatch: ") || strings.Count(r.stderr, "\n") != 1 || strings.Contains(r.stderr, "s3cret") {
		s.Fatalf("want one line, which begins with pglatch and has no secret")
	}
	if !strings.Contains(r.stderr, args[0]) {
		s.Fatalf("want a line with %q", args[0])
	}
}

func (s *script) until(args []string) {
	pattern, words, code := regexp.MustCompile("(?m)"+args[0]), args[1:], ""
	if words[0] == "exits" && len(words) > 2 {
		code, words = words[1], words[2:]
	}
	var r result
	await.Until(s.t, await.Soon, func() bool {
		r = s.run(words[0], words[1:])
		return pattern.MatchString(r.stdout) || pattern.MatchString(r.stderr)
	}, func() string { return fmt.Sprintf("%q: %+v", args, r) })
	s.expect(cmp.Or(code, strconv.Itoa(r.code)), r)
}

func (s *script) start(args []string) {
	require.NotContains(s.t, s.programs, args[0], "a program of this name runs")
	cmd := s.command(context.WithoutCancel(s.t.Context()), args[1], args[2:])
	null, err := os.Open(os.DevNull)
	s.Check(err)
	defer null.Close() //nolint:errcheck // only read from
	cmd.Stdin = null
	s.programs[args[0]] = start(s.t, cmd)
}

// named returns the program that start started.
func (s *script) named(name string) *Program {
	if s.programs[name] == nil {
		s.Fatalf("no program %s was started", name)
	}
	return s.programs[name]
}

// says waits for a match in either output.
func (s *script) says(args []string) { s.await(args, true) }

// prints waits for a match in the standard output.
func (s *script) prints(args []string) { s.await(args, false) }

func (s *script) await(args []string, all bool) {
	p, pattern := s.named(args[0]), regexp.MustCompile("(?m)"+args[1])
	var groups []string
	await.Until(s.t, await.Soon, func() bool {
		if groups = pattern.FindStringSubmatch(p.Stdout.String()); groups == nil && all {
			groups = pattern.FindStringSubmatch(p.Stderr.String())
		}
		return groups != nil
	}, func() string { return fmt.Sprintf("%s\n%s%s", args, p.Stdout.String(), p.Stderr.String()) })
	s.set(pattern, groups)
}

func (s *script) match(args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	groups := pattern.FindStringSubmatch(s.ReadFile("stdout"))
	if groups == nil {
		s.Fatalf("no match")
	}
	s.set(pattern, groups)
}

// set sets variables to the named groups of a match.
func (s *script) set(pattern *regexp.Regexp, groups []string) {
	for i, name := range pattern.SubexpNames() {
		if name != "" {
			s.Setenv(name, groups[i])
		}
	}
}

func (s *script) silent(args []string) { assert.Empty(s.t, s.named(args[0]).Stdout.String()) }

func (s *script) signal(args []string) {
	number := unix.SignalNum("SIG" + args[1])
	if number == 0 {
		s.Fatalf("there is no signal %s", args[1])
	}
	s.named(args[0]).Signal(number)
}

func (s *script) ends(args []string) {
	p := s.named(args[0])
	delete(s.programs, args[0])
	code := p.Wait()
	s.expect(args[1], result{p.Stdout.String(), p.Stderr.String(), code})
}

func (s *script) gone(args []string) {
	for _, text := range args {
		pid, err := strconv.Atoi(text)
		s.Check(err)
		RequireDead(s.t, pid)
	}
}
