package pgserver

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

const (
	minMajor = 14
	maxMajor = 18
)

// An Installation is a directory with PostgreSQL's server programs.
type Installation struct {
	BinDir  string // holds initdb and postgres
	Version string // as postgres --version prints it, "15.18"
	Major   int    // 15
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)(\S*)`)

// inspect gets the version of the programs in dir, as the account that will run them: root may
// see directories that the account cannot.
func inspect(ctx context.Context, dir string, as account) (Installation, error) {
	out, err := as.command(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Installation{}, fmt.Errorf("%s/postgres --version: %w", dir, err)
	}
	match := versionPattern.FindSubmatch(out)
	if match == nil {
		return Installation{}, fmt.Errorf("%s/postgres --version printed %q", dir, out)
	}
	if _, err := exec.LookPath(filepath.Join(dir, "initdb")); err != nil {
		return Installation{}, err
	}
	major, err := strconv.Atoi(string(match[1]))
	if err != nil {
		return Installation{}, err
	}
	return Installation{BinDir: dir, Version: string(match[1]) + string(match[2]), Major: major}, nil
}

func parseMajor(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	major, err := strconv.Atoi(s)
	if err != nil || major < minMajor || major > maxMajor {
		return 0, fmt.Errorf("pgserver: PGLATCH_PG_VERSION is %q: use %d to %d, or unset it", s, minMajor, maxMajor)
	}
	return major, nil
}
