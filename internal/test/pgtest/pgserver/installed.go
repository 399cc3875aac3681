package pgserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func installedGlobs() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	}
}

// installed returns the first usable installation of the machine.
func (f finder) installed(ctx context.Context) (Installation, bool) {
	for _, dir := range f.candidates(ctx) {
		if in, err := inspect(ctx, dir, f.as); err == nil && f.fits(in) {
			return in, true
		}
	}
	return Installation{}, false
}

func (f finder) fits(in Installation) bool {
	return in.Major >= minMajor && (f.major == 0 || in.Major == f.major)
}

// candidates lists the directories where the programs may be, best first.
func (f finder) candidates(ctx context.Context) []string {
	path := filepath.SplitList(f.getenv("PATH"))
	dirs := []string{f.getenv("PGBIN"), pgConfigBindir(ctx, path)}
	dirs = append(dirs, path...)
	for _, glob := range f.globs {
		found, _ := filepath.Glob(glob) // the patterns are constant and well formed
		slices.SortFunc(found, func(a, b string) int { return numberIn(b) - numberIn(a) })
		dirs = append(dirs, found...)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "postgres"))
		return !filepath.IsAbs(dir) || err != nil
	})
}

// pgConfigBindir returns the output of the first pg_config in path.
func pgConfigBindir(ctx context.Context, path []string) string {
	for _, dir := range path {
		if out, err := exec.CommandContext(ctx, filepath.Join(dir, "pg_config"), "--bindir").Output(); err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	return ""
}

// numberIn returns the last number in a path, its version.
func numberIn(path string) int {
	numbers := strings.FieldsFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	if len(numbers) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(numbers[len(numbers)-1])
	return n
}
