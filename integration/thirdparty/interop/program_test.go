//go:build integration

package interop_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace/interop"
)

// A program is a tool that migrates a database with the migrations of a directory.
type program struct {
	command func(ctx context.Context, directory string) *exec.Cmd
	refusal string // what it says when somebody has its lock
}

// run migrates. The database is in DATABASE_URL.
func (p program) run(ctx context.Context, dsn, directory string) (refused bool, err error) {
	cmd := p.command(ctx, directory)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn)
	output, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(output), p.refusal) {
		return true, nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return false, err
}

// peer is the program as a tool that runs the migrations of one directory, where it waits at a gate, and of an empty one.
func (p program) peer(gated, empty string) peer {
	return peer{
		hold: func(t *testing.T, dsn string) (release func()) {
			t.Helper()
			open := closeGate(t, dsn)
			release = background(t, func() error {
				refused, err := p.run(context.WithoutCancel(t.Context()), dsn, gated)
				if refused {
					err = errors.Join(err, errors.New("refused"))
				}
				return err
			}, open)
			conn := pgtest.Connect(t, dsn)
			await.Until(t, patience, func() (there bool) {
				err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'gate'::regclass AND NOT granted)").Scan(&there)
				return err == nil && there
			})
			return release
		},
		try: func(ctx context.Context, dsn string) (refused bool, err error) { return p.run(ctx, dsn, empty) },
	}
}

// find returns the path of a program, or says that the test was not run; in CI that is a failure.
func find(t *testing.T, name, why string) string {
	t.Helper()
	return notrun.Program(t, why, name)
}

func write(t *testing.T, name, text string) (directory string) {
	t.Helper()
	directory = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600))
	return directory
}

func TestRailsAndPglatchExcludeEachOther(t *testing.T) {
	t.Parallel()
	ruby := find(t, "ruby", "no program ruby; Debian has what is needed in the packages ruby-activerecord and ruby-pg")
	script, err := filepath.Abs("testdata/rails/migrate.rb")
	require.NoError(t, err)
	const migration = "class %s < ActiveRecord::Migration[6.1]\n  def up\n    %s\n  end\nend\n"
	p := program{
		command: func(ctx context.Context, directory string) *exec.Cmd {
			return exec.CommandContext(ctx, ruby, script, directory)
		},
		refusal: "ActiveRecord::ConcurrentMigrationError",
	}.peer(
		write(t, "20260101000000_gate.rb", fmt.Sprintf(migration, "Gate", "execute 'SELECT FROM gate'")),
		write(t, "20260102000000_empty.rb", fmt.Sprintf(migration, "Empty", "")),
	)
	p.key = interop.Rails
	p.require(t)
}

func TestNodePgMigrateAndPglatchExcludeEachOther(t *testing.T) {
	t.Parallel()
	npm := find(t, "npm", "no program npm, which fetches node-pg-migrate")
	modules := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join("testdata", "npm", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(modules, name), text, 0o600))
	}
	install := exec.CommandContext(t.Context(), npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = modules
	output, err := install.CombinedOutput()
	require.NoError(t, err, "%s", output)

	const migration = "exports.up = (pgm) => { %s };\nexports.down = false;\n"
	p := program{
		command: func(ctx context.Context, directory string) *exec.Cmd {
			return exec.CommandContext(ctx, filepath.Join(modules, "node_modules", ".bin", "node-pg-migrate"), "up", "--migrations-dir", directory, "--no-check-order")
		},
		refusal: "Another migration is already running",
	}.peer(
		write(t, "1767225600000_gate.js", fmt.Sprintf(migration, "pgm.sql('SELECT FROM gate')")),
		write(t, "1767225600001_empty.js", fmt.Sprintf(migration, "")),
	)
	p.key = always(interop.NodePgMigrate())
	p.require(t)
}
