//go:build integration

package compat_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// A version is a state of the repository, with its programs.
type version struct {
	name, tree string
	pglatch    string // the command
	peer       string // testdata/peer, built against this version's packages
}

// baseTurns is the other version for mailboxes, which base does not have.
var base, baseTurns, today version

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "pglatch-compat-")
	if err == nil {
		err = buildAll(context.Background(), dir)
	}
	code := 1
	if err == nil {
		code = pgtest.Run(m)
	} else {
		fmt.Fprintln(os.Stderr, "compat:", err)
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func buildAll(ctx context.Context, dir string) (err error) {
	if base, err = buildCommit(ctx, dir, "base"); err != nil {
		return err
	}
	if baseTurns, err = buildCommit(ctx, dir, "base.turns", "mailboxes"); err != nil {
		return err
	}
	today, err = build(ctx, "today", "..", filepath.Join(dir, "bin-today"), "mailboxes")
	return err
}

// buildCommit builds the version of the commit that a file names.
func buildCommit(ctx context.Context, dir, file string, tags ...string) (version, error) {
	commit, err := baseCommit(ctx, file)
	if err != nil {
		return version{}, err
	}
	tree := filepath.Join(dir, file)
	if err := extract(ctx, commit, tree); err != nil {
		return version{}, err
	}
	// The program of users is today's: it must compile with the packages of both.
	peer := filepath.Join(tree, "compat", "testdata", "peer")
	if err := os.RemoveAll(peer); err != nil {
		return version{}, err
	}
	if err := os.CopyFS(peer, os.DirFS("testdata/peer")); err != nil {
		return version{}, err
	}
	return build(ctx, "base", tree, filepath.Join(dir, "bin-"+file), tags...)
}

// baseCommit returns the commit that a file names. Its error says how to get it.
func baseCommit(ctx context.Context, file string) (string, error) {
	text, err := os.ReadFile(file) //nolint:gosec // of a test
	if err != nil {
		return "", err
	}
	commit := strings.TrimSpace(string(text))
	if out, err := git(ctx, "cat-file", "-e", commit+"^{commit}"); err != nil {
		return "", fmt.Errorf("the commit %q of compat/%s is not in this clone. A shallow clone gets it by \"git fetch --unshallow\", "+
			"and actions/checkout by \"fetch-depth: 0\". Without the history, these tests cannot run: %w\n%s", commit, filepath.Base(file), err, out)
	}
	return commit, nil
}

func git(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", ".."}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return stderr.Bytes(), err
	}
	return out, nil
}

// extract writes the files of a commit into a directory.
func extract(ctx context.Context, commit, dir string) error {
	archive, err := git(ctx, "archive", "--format=tar", commit)
	if err != nil {
		return fmt.Errorf("git archive %s: %w\n%s", commit, err, archive)
	}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(header.Name) {
			continue // the commit's own name
		}
		name := filepath.Join(dir, header.Name) //nolint:gosec // IsLocal
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755) //nolint:gosec // nothing secret
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, content, 0o644) //nolint:gosec // nothing secret
			}
		}
		if err != nil {
			return err
		}
	}
}

// build compiles the programs of a version. All versions share the build cache.
func build(ctx context.Context, name, tree, out string, tags ...string) (version, error) {
	if err := os.Mkdir(out, 0o755); err != nil { //nolint:gosec // nothing secret
		return version{}, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", strings.Join(tags, ","), "-o", out, "./cmd/pglatch", "./compat/testdata/peer")
	cmd.Dir = tree
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return version{}, fmt.Errorf("building the version %s: %w\n%s", name, err, text)
	}
	return version{name: name, tree: tree, pglatch: filepath.Join(out, "pglatch"), peer: filepath.Join(out, "peer")}, nil
}

// inBothOrders runs a test with each version as the first.
func inBothOrders(t *testing.T, test func(t *testing.T, first, second version)) {
	t.Helper()
	inBothOrdersOf(t, base, test)
}

// inBothOrdersOf is inBothOrders with another base.
func inBothOrdersOf(t *testing.T, base version, test func(t *testing.T, first, second version)) {
	t.Helper()
	t.Run("base, then today", func(t *testing.T) {
		t.Parallel()
		test(t, base, today)
	})
	t.Run("today, then base", func(t *testing.T) {
		t.Parallel()
		test(t, today, base)
	})
}

// A peer is a running testdata/peer.
type peer struct{ *proctest.Process }

// run starts a peer in a role, with COMPAT_FILE in its environment.
func (v version) run(t *testing.T, dsn, file string, args ...string) peer {
	t.Helper()
	cmd := proctest.Command(t, v.peer, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn, "COMPAT_FILE="+file)
	return peer{proctest.Start(t, cmd)}
}

// start starts a peer in a role that it can play.
func (v version) start(t *testing.T, dsn string, args ...string) peer {
	t.Helper()
	p := v.run(t, dsn, "", args...)
	p.Expect("ready")
	return p
}

// do sends a command, and returns its answer. On a busy machine the server may not answer in the time that an acquire has: then
// nothing was acquired, and the command is sent again.
func (p peer) do(command string) (answer string) {
	for range 20 {
		p.Tell(command)
		if answer = p.Line(); !strings.Contains(answer, "no answer from the server within") {
			break
		}
	}
	return answer
}

// says sends a command, and expects an answer.
func (p peer) says(t *testing.T, command, answer string) {
	t.Helper()
	require.Equal(t, answer, p.do(command), command)
}

// command starts the command of a version.
func (v version) command(t *testing.T, dsn string, args ...string) *clitest.Program {
	t.Helper()
	p := clitest.StartCommand(t, clitest.At(dsn, "PGLATCH_NAMESPACES=entity=7"), v.pglatch, args...)
	p.Limit = await.Patience
	return p
}

// newCounter makes a database with a table that peers count in.
func newCounter(t *testing.T) (dsn string, count func() int) {
	t.Helper()
	dsn = pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	return dsn, func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n))
		return n
	}
}

func TestACommitThatIsNotThereIsAFailureThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "base")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("0", 40)+"\n"), 0o600))
	_, err := baseCommit(t.Context(), file)
	require.ErrorContains(t, err, "git fetch --unshallow")
}
