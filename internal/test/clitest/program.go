package clitest

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// environ is the environment of a test's program: that of the test without variables that name a
// database or change the output, plus env ("NAME=value").
func environ(env []string) []string {
	inherited := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "PG") || slices.Contains([]string{"DATABASE_URL", "NO_COLOR", "TERM"}, name)
	})
	return append(append(inherited, "GORACE="+gobuild.RaceOptions), env...)
}

// At is the environment that names a database.
func At(dsn string, more ...string) []string { return append(more, "DATABASE_URL="+dsn) }

// Run runs the program to its end.
func Run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	p := Start(t, env, args...)
	code = p.Wait()
	return p.Stdout.String(), p.Stderr.String(), code
}

// A Program is a running program.
type Program struct {
	*proctest.Process
	t *testing.T
}

// Leaves are the commands that have none below them, as the help says: "leader run".
func Leaves(t *testing.T, of ...string) (all []string) {
	t.Helper()
	help, _, _ := Run(t, nil, append(of, "--help")...)
	_, list, found := strings.Cut(help, "Available Commands:\n")
	if !found {
		return []string{strings.Join(of, " ")}
	}
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		name := strings.Fields(line)[0]
		if len(of) == 0 && (name == "completion" || name == "help") {
			all = append(all, name)
			continue
		}
		all = append(all, Leaves(t, append(slices.Clone(of), name)...)...)
	}
	return all
}

// Start starts the program. Its standard input is empty.
func Start(t *testing.T, env []string, args ...string) *Program {
	t.Helper()
	return StartCommand(t, env, Binary, args...)
}

// StartCommand starts another program instead, such as one that starts the program.
func StartCommand(t *testing.T, env []string, name string, args ...string) *Program {
	t.Helper()
	cmd := proctest.Command(t, name, args...)
	cmd.Env = environ(env)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close() //nolint:errcheck // only read from
	cmd.Stdin = null
	return start(t, cmd)
}

func start(t *testing.T, cmd *exec.Cmd) *Program {
	t.Helper()
	p := &Program{proctest.Start(t, cmd), t}
	p.Limit = await.Soon
	return p
}

// Decode decodes one JSON document, strictly.
func Decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	require.NoError(t, d.Decode(&v), text)
	_, err := d.Token()
	require.ErrorIs(t, err, io.EOF, "one document: %s", text)
	return v
}

// DecodeLines decodes one document per line.
func DecodeLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		all = append(all, Decode[T](t, s.Text()))
	}
	return all
}
