package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// day is the date of the tests' releases.
var day = time.Date(2026, 12, 24, 12, 0, 0, 0, time.UTC)

const fixtureModule = "github.com/example/fixture"

// program says its version.
const program = `package main

import (
	"fmt"
	"runtime/debug"

	_ "github.com/example/fixture/thing"
)

func main() {
	info, _ := debug.ReadBuildInfo()
	fmt.Println("thing version", info.Main.Version)
}
`

// fixture creates a repository with a library and a program, a program that is a module of its own, an adapter
// that needs the library, an adapter that needs both, and tests of their own.
func fixture(t *testing.T) *repository {
	t.Helper()
	r := &repository{dir: t.TempDir(), module: fixtureModule, stable: []string{"thing", "adapters/one"}}
	write := func(name, content string) { r.write(t, name, content) }
	write("LICENSE", "anything goes\n")
	write("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n### Added\n\n- everything.\n")
	write("go.mod", "module "+fixtureModule+"\n\ngo 1.26.0\n")
	write("thing/thing.go", "package thing\n\nconst Name = \"thing\"\n")
	write("internal/hidden/hidden.go", "package hidden\n")
	write("cmd/thing/main.go", program)
	write("cmd/thing-two/go.mod", nested("cmd/thing-two", "../..", ""))
	write("cmd/thing-two/main.go", program)
	write("adapters/one/go.mod", nested("adapters/one", "../..", ""))
	write("adapters/one/one.go", "package one\n\nimport \""+fixtureModule+"/thing\"\n\nconst Name = thing.Name\n")
	write("adapters/two/go.mod", nested("adapters/two", "../..", "adapters/one"))
	write("adapters/two/two.go", "package two\n\nimport \""+fixtureModule+"/adapters/one\"\n\nconst Name = one.Name\n")
	write("integration/all/go.mod", nested("integration/all", "../..", "adapters/one"))
	write("integration/all/all.go", "package all\n\nimport _ \""+fixtureModule+"/adapters/one\"\n")
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"config", "user.name", "somebody"},
		{"config", "user.email", "somebody@example.test"},
	} {
		r.mustGit(t, args...)
	}
	r.mustCommit(t, "first")
	return r
}

func nested(dir, root, other string) string {
	s := fmt.Sprintf("module %[1]s/%[2]s\n\ngo 1.26.0\n\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[3]s\n", fixtureModule, dir, root)
	if other != "" {
		s += fmt.Sprintf("\nrequire %[1]s/%[2]s v0.0.0\n\nreplace %[1]s/%[2]s => %[3]s/%[2]s\n", fixtureModule, other, root)
	}
	return s
}

func (r *repository) write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(r.path(name)), 0o755))
	require.NoError(t, os.WriteFile(r.path(name), []byte(content), 0o644))
}

func (r *repository) mustGit(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.git(t.Context(), args...)
	require.NoError(t, err)
	return out
}

func (r *repository) mustCommit(t *testing.T, message string) string {
	t.Helper()
	commit, err := r.commit(t.Context(), message)
	require.NoError(t, err)
	return commit
}

// offline keeps the go command off the network: the fixture needs only its own modules.
func offline(t *testing.T) {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
}

func TestEachModuleIsEitherPublishedOrNot(t *testing.T) {
	t.Parallel()
	r, err := openRepository(t.Context(), ".")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "git", "-C", r.dir, "ls-files", "*go.mod").Output()
	require.NoError(t, err)
	var dirs []string
	for file := range strings.FieldsSeq(string(out)) {
		dirs = append(dirs, filepath.ToSlash(filepath.Dir(file)))
	}
	published, others, err := sortModules(dirs)
	require.NoError(t, err)
	assert.Len(t, append(published, others...), len(dirs))
	assert.Contains(t, published, ".")
	assert.Contains(t, published, "leader/kubernetes")
	assert.Contains(t, others, "integration/thirdparty")
	assert.Contains(t, others, "tools")

	_, _, err = sortModules([]string{".", "somewhere/new"})
	require.ErrorContains(t, err, "somewhere/new")
	publishedToo := "observe/integration"
	require.True(t, matches(publishedDirs, publishedToo))
	require.False(t, matches(otherDirs, publishedToo), "or it is in both, and an error")
}

// A release writes and publishes what the modules of this repository require.
func TestEachModuleIsCalledByItsDirectoryAndRequiresOnlyPublishedOnes(t *testing.T) {
	t.Parallel()
	r, err := openRepository(t.Context(), ".")
	require.NoError(t, err)
	dirs, err := r.moduleDirs(t.Context(), "HEAD")
	require.NoError(t, err)
	modules, err := r.requirers(dirs)
	require.NoError(t, err)
	_, err = inOrder(modules)
	require.NoError(t, err)
	published := make(map[string]bool)
	for _, m := range modules {
		published[m.path] = m.published
	}
	for _, m := range modules {
		for _, path := range m.ours {
			assert.True(t, published[path] || !m.published, "%s requires %s", m.path, path)
		}
	}
}

func TestARelease(t *testing.T) {
	offline(t)
	r := fixture(t)
	first := r.mustGit(t, "rev-parse", "HEAD")
	require.NoError(t, cut(t.Context(), r, "v0.1.0", day))

	t.Run("has a tag for each published module, beside the branch", func(t *testing.T) {
		assert.Equal(t, "adapters/one/v0.1.0\nadapters/two/v0.1.0\ncmd/thing-two/v0.1.0\nv0.1.0", r.mustGit(t, "tag", "--list"))
		assert.Equal(t, first, r.mustGit(t, "rev-parse", "v0.1.0~2"))
		assert.Equal(t, r.mustGit(t, "rev-parse", "HEAD"), r.mustGit(t, "rev-parse", "v0.1.0~1"))
		assert.Equal(t, "main", r.mustGit(t, "branch", "--show-current"))
		require.NoError(t, r.clean(t.Context()))
	})
	t.Run("requires itself in its version, without replace directives", func(t *testing.T) {
		for _, file := range []string{"adapters/one/go.mod", "adapters/two/go.mod"} {
			content := r.mustGit(t, "show", "v0.1.0:"+file)
			assert.NotContains(t, content, "replace")
			assert.NotContains(t, content, "v0.0.0")
			assert.Contains(t, content, fixtureModule+" v0.1.0")
			assert.Contains(t, r.mustGit(t, "show", "HEAD:"+file), "replace", "the branch goes on with them")
		}
		sums := r.mustGit(t, "show", "v0.1.0:adapters/two/go.sum")
		assert.Equal(t, 4, strings.Count(sums, " v0.1.0"), sums)
		assert.Contains(t, r.mustGit(t, "show", "v0.1.0:integration/all/go.mod"), "replace", "it is not published")
	})
	t.Run("has its changes in the changelog of the branch", func(t *testing.T) {
		assert.Equal(t, "# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-12-24\n\n### Added\n\n- everything.", r.mustGit(t, "show", "HEAD:CHANGELOG.md"))
	})
	t.Run("is not made twice", func(t *testing.T) {
		require.ErrorContains(t, cut(t.Context(), r, "v0.1.0", day), "there is a tag")
	})
	t.Run("has something new to say", func(t *testing.T) {
		require.ErrorIs(t, cut(t.Context(), r, "v0.1.1", day), errNothing)
	})
}

// refused requires that a release is refused and leaves nothing behind.
func refused(t *testing.T, r *repository, version, why string) {
	t.Helper()
	before := r.mustGit(t, "rev-parse", "HEAD")
	require.ErrorContains(t, cut(t.Context(), r, version, day), why)
	assert.Empty(t, r.mustGit(t, "tag", "--list", "*"+version))
	assert.Equal(t, before, r.mustGit(t, "rev-parse", "HEAD"))
}

func TestAReleaseIsRefused(t *testing.T) {
	offline(t)
	for _, version := range []string{"0.1.0", "v0.1", "v0.1.0+x", "v2.0.0", "v0.0.0-20260101000000-0123456789ab", "latest", ""} {
		t.Run("of version "+version, func(t *testing.T) {
			require.Error(t, checkVersion(version))
			refused(t, fixture(t), version, version)
		})
	}
	t.Run("of a tree with changes", func(t *testing.T) {
		r := fixture(t)
		r.write(t, "more.txt", "")
		refused(t, r, "v0.1.0", "not committed")
	})
	t.Run("with a module that is in no list", func(t *testing.T) {
		r := fixture(t)
		r.write(t, "somewhere/new/go.mod", nested("somewhere/new", "../..", ""))
		r.mustCommit(t, "another module")
		refused(t, r, "v0.1.0", "somewhere/new")
	})
	t.Run("with a module that needs one that is not published", func(t *testing.T) {
		r := fixture(t)
		r.write(t, "adapters/one/go.mod", nested("adapters/one", "../..", "integration/all"))
		r.write(t, "integration/all/go.mod", nested("integration/all", "../..", ""))
		r.mustCommit(t, "the wrong way round")
		refused(t, r, "v0.1.0", "which is not published")
	})
	t.Run("with a replaced module that is not ours", func(t *testing.T) {
		r := fixture(t)
		r.write(t, "adapters/one/go.mod", nested("adapters/one", "../..", "")+"\nreplace example.test/other => example.test/fork v1.0.0\n")
		r.mustCommit(t, "a fork")
		refused(t, r, "v0.1.0", "nobody could install")
	})
	t.Run("if it does not compile outside of the repository", func(t *testing.T) {
		r := fixture(t)
		// A module's archive leaves out directories with their own go.mod.
		r.write(t, "thing/go.mod", "module "+fixtureModule+"/thing\n\ngo 1.26.0\n")
		r.write(t, "thing/thing.go", "package thing\n\nconst Name = \"thing\"\n")
		r.mustCommit(t, "a part that is left out")
		defer func(before []string) { otherDirs = before }(otherDirs)
		otherDirs = append(otherDirs, "thing")
		refused(t, r, "v0.1.0", "a program that imports")
	})
	for _, dir := range []string{"cmd/thing", "cmd/thing-two"} {
		t.Run("if the program "+dir+" does not tell the version", func(t *testing.T) {
			r := fixture(t)
			r.write(t, dir+"/main.go", "package main\n\nfunc main() {}\n")
			r.mustCommit(t, "a silent program")
			refused(t, r, "v0.1.0", "--version says")
		})
	}
}

func TestAReleaseThatWasNotPreparedCannotBeUsed(t *testing.T) {
	offline(t)
	for name, test := range map[string]struct{ change, why string }{
		"a replace directive":             {nested("adapters/one", "../..", ""), "replaces " + fixtureModule},
		"a version that nobody has":       {"module " + fixtureModule + "/adapters/one\n\ngo 1.26.0\n\nrequire " + fixtureModule + " v0.0.0\n", "not of this release"},
		"another archive than others say": {"module " + fixtureModule + "/adapters/one\n\ngo 1.26.0\n", "checksum mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fixture(t)
			err := r.inClone(t.Context(), func(clone *repository, dir string) error {
				c, err := prepare(t.Context(), clone, "v0.1.0", day)
				require.NoError(t, err)
				c.write(t, "adapters/one/go.mod", test.change)
				c.commit = c.mustCommit(t, "back to where it was")
				return c.tryOut(t.Context(), dir)
			})
			require.ErrorContains(t, err, test.why)
		})
	}
}

func TestATagOnAnotherCommitIsNoRelease(t *testing.T) {
	offline(t)
	r := fixture(t)
	err := r.inClone(t.Context(), func(clone *repository, dir string) error {
		c, err := prepare(t.Context(), clone, "v0.1.0", day)
		require.NoError(t, err)
		c.write(t, "adapters/one/more.go", "package one\n")
		c.mustCommit(t, "more")
		c.mustGit(t, "tag", "--force", "--annotate", "--message", "moved", "adapters/one/v0.1.0")
		return c.tryOut(t.Context(), dir)
	})
	require.ErrorContains(t, err, "the go command makes")
}

func TestATrialLeavesNothingBehind(t *testing.T) {
	offline(t)
	r := fixture(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	before := r.mustGit(t, "for-each-ref") + r.mustGit(t, "status", "--porcelain") + r.mustGit(t, "count-objects")
	require.NoError(t, trial(t.Context(), r, day))
	assert.Equal(t, before, r.mustGit(t, "for-each-ref")+r.mustGit(t, "status", "--porcelain")+r.mustGit(t, "count-objects"))
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	assert.Empty(t, left)

	t.Run("and needs nothing that is unreleased", func(t *testing.T) {
		require.NoError(t, cut(t.Context(), r, "v0.1.0", day))
		require.NoError(t, trial(t.Context(), r, day))
	})
}

// pinned adds the pinned tools to a fixture.
func pinned(t *testing.T, r *repository) string {
	t.Helper()
	here, err := openRepository(t.Context(), ".")
	require.NoError(t, err)
	for _, file := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(here.path("tools", file))
		require.NoError(t, err)
		r.write(t, "tools/"+file, strings.Replace(string(content), "module "+here.module+"/", "module "+fixtureModule+"/", 1))
	}
	return r.mustCommit(t, "tools")
}

func TestAPIDiffSaysWhatBreaks(t *testing.T) {
	t.Parallel()
	r := fixture(t)
	r.write(t, "loose/loose.go", "package loose\n\nconst Name = 1\n")
	r.write(t, "thing/part/part.go", "package part\n\nconst Name = 1\n")
	first := pinned(t, r)
	r.stable = append(r.stable, "adapters/three", "gone")
	r.write(t, "thing/thing.go", "package thing\n\nconst Title = \"thing\"\n")
	r.write(t, "loose/loose.go", "package loose\n\nconst Title = 1\n")
	r.write(t, "adapters/one/one.go", "package one\n\nconst Name, More = 2, 1\n")
	r.write(t, "adapters/three/go.mod", nested("adapters/three", "../..", ""))
	r.mustGit(t, "rm", "-q", "-r", "thing/part")
	r.mustCommit(t, "another name")
	var said bytes.Buffer
	broken, err := apidiff(t.Context(), r, first, &said)
	require.NoError(t, err)
	assert.Contains(t, said.String(), "Name: removed")
	assert.Contains(t, said.String(), "Title: added")
	assert.Contains(t, said.String(), "cmd/thing-two since "+first+"\nno change\n")
	assert.Contains(t, said.String(), "adapters/three since "+first+"\nnew\n")
	assert.ElementsMatch(t, []breach{
		{text: "- Name: changed from untyped string to untyped int (adapters/one)"},
		{text: "- ./thing.Name: removed (thing), and was not deprecated", sudden: true},
	}, broken, "loose and thing/part are not stable")
	assert.Contains(t, said.String(), "INCOMPATIBLE changes of stable packages (docs/stability.md):\n- ")

	r.stable = append(r.stable, "thing/part")
	broken, err = apidiff(t.Context(), r, first, &said)
	require.NoError(t, err)
	assert.Contains(t, lines(broken), "- package "+fixtureModule+"/thing/part: removed (thing/part)")
	_, err = apidiff(t.Context(), r, "nothing", &said)
	require.ErrorContains(t, err, "is no commit")
}

func TestAPIDiffWithoutAVersionHasNothingToCompare(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	broken, err := apidiff(t.Context(), fixture(t), "", &said)
	require.NoError(t, err)
	assert.Empty(t, broken)
	assert.Equal(t, "no version is tagged yet, so there is no API to compare with\n", said.String())
}

func TestAReleaseThatBreaksAStablePackageIsAMinorVersionThatSaysSo(t *testing.T) {
	t.Setenv("GOPROXY", "off") // the tools are in the module cache
	t.Setenv("GOFLAGS", "")
	r := fixture(t)
	pinned(t, r)
	require.NoError(t, cut(t.Context(), r, "v0.1.0", day))
	change := func(source, notes string) {
		t.Helper()
		r.write(t, "thing/thing.go", source)
		changelog, err := os.ReadFile(r.path("CHANGELOG.md"))
		require.NoError(t, err)
		r.write(t, "CHANGELOG.md", strings.Replace(string(changelog), "## Unreleased\n", "## Unreleased\n\n"+notes, 1))
		r.mustCommit(t, "a change")
	}
	const name, more = "package thing\n\nconst Name = \"thing\"\n", "\n\nconst More = 1\n"
	change(name+more, "### Added\n\n- more.\n")
	require.NoError(t, cut(t.Context(), r, "v0.1.1", day), "an addition")

	change(name+strings.Replace(more, "1", "\"one\"", 1), "### Added\n\n- a string.\n")
	refused(t, r, "v0.1.2", "v0.1.2 has the same minor version as v0.1.1")
	refused(t, r, "v0.2.0", "neither \"### Changed\" nor")
	change(name+strings.Replace(more, "1", "\"one\"", 1)+"\nconst Most = 2\n", "### Changed\n\n- a string.\n")
	require.NoError(t, cut(t.Context(), r, "v0.2.0", day))

	change(name, "### Removed\n\n- less.\n")
	refused(t, r, "v0.3.0", "- ./thing.More: removed (thing), and was not deprecated")
	change(name+"\n// Deprecated: use Name.\nconst More = \"one\"\n\n// Most is more.\n//\n// Deprecated: use Name.\nconst Most = 2\n", "")
	require.NoError(t, cut(t.Context(), r, "v0.3.0", day))
	change(name, "### Removed\n\n- More and Most.\n")
	require.NoError(t, cut(t.Context(), r, "v0.4.0", day))
}

// The page and the tool have one list.
func TestThePageListsTheStablePackages(t *testing.T) {
	t.Parallel()
	r, err := openRepository(t.Context(), ".")
	require.NoError(t, err)
	page, err := os.ReadFile(r.path("docs", "stability.md"))
	require.NoError(t, err)
	_, list, found := strings.Cut(string(page), "\n## Packages\n")
	require.True(t, found)
	_, list, _ = strings.Cut(list, "| stable | ")
	list, _, _ = strings.Cut(list, " |")
	var listed []string
	for name := range strings.SplitSeq(list, ", ") {
		listed = append(listed, strings.Trim(name, "`"))
	}
	assert.Equal(t, stablePackages, listed)
	for _, dir := range stablePackages {
		files, err := filepath.Glob(r.path(dir, "*.go"))
		require.NoError(t, err)
		assert.NotEmpty(t, files, dir)
	}
}

func TestTheChangelogOfThisRepositoryCanBeReleased(t *testing.T) {
	t.Parallel()
	r, err := openRepository(t.Context(), ".")
	require.NoError(t, err)
	content, err := os.ReadFile(r.path("CHANGELOG.md"))
	require.NoError(t, err)
	changed, err := releaseChangelog(string(content), "v99.0.0", day)
	if err != nil {
		require.ErrorIs(t, err, errNothing)
		return
	}
	assert.Contains(t, changed, "\n## Unreleased\n\n## 99.0.0 - 2026-12-24\n")
	again, err := releaseChangelog(changed, "v99.0.0", day)
	require.NoError(t, err)
	assert.Equal(t, changed, again)
	_, err = releaseChangelog(strings.Replace(changed, unreleased+"\n", unreleased+"\n\n- more\n", 1), "v99.0.0", day)
	require.ErrorContains(t, err, "beside it")
}

func TestTheLatestVersionIsTheHighest(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "v0.10.0", latest([]string{"v0.9.0", "v0.10.0", "adapters/one/v0.11.0", "v0.10.0-rc.1", "nonsense"}))
	assert.Empty(t, latest(nil))
}

func TestACommandThatTakesLongIsNotSilent(t *testing.T) {
	t.Parallel()
	told := make(chan time.Duration)
	stop := every(time.Millisecond, func(d time.Duration) {
		select {
		case told <- d:
		default:
		}
	})
	first := <-told
	assert.Greater(t, <-told, first)
	stop()
	select {
	case <-told:
		assert.Fail(t, "it goes on after the command")
	default:
	}
}

func TestABillNamesEveryModule(t *testing.T) {
	t.Parallel()
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	require.NotEmpty(t, info.Deps)
	info.Deps = append(info.Deps, &debug.Module{Path: "example.test/a", Version: "v1.0.0", Replace: &debug.Module{Path: "example.test/b c", Version: "v1.0.1+dirty"}})
	b := newBill(info, []byte("program"))
	var names []string
	for _, c := range b.Components {
		names = append(names, c.Name+" "+c.Version)
		assert.Equal(t, c.PURL, c.Ref)
	}
	want := []string{"std " + strings.TrimPrefix(runtime.Version(), "go"), "example.test/b c v1.0.1+dirty"}
	for _, m := range info.Deps[:len(info.Deps)-1] {
		want = append(want, m.Path+" "+m.Version)
	}
	assert.ElementsMatch(t, want, names)
	last := b.Components[len(b.Components)-1]
	assert.Equal(t, "pkg:golang/example.test/b%20c@v1.0.1%2Bdirty", last.PURL)
	assert.Equal(t, []property{{"go:replaces", "example.test/a@v1.0.0"}}, last.Properties)
	assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte("program"))), b.Metadata.Component.Hashes[0].Content)
}

func TestBinariesHaveBillsAndSums(t *testing.T) {
	t.Parallel()
	r := fixture(t)
	r.write(t, "cmd/pglatch/main.go", program)
	r.mustCommit(t, "a command")
	r.mustGit(t, "tag", "v0.1.0")
	out := filepath.Join(t.TempDir(), "dist")
	require.NoError(t, binaries(t.Context(), r, out, []string{"linux/amd64", "windows/arm64"}))
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	require.NoError(t, err)
	entries, err := os.ReadDir(out)
	require.NoError(t, err)
	var want strings.Builder
	for _, name := range []string{"pglatch-linux-amd64", "pglatch-linux-amd64.cdx.json", "pglatch-windows-arm64.exe", "pglatch-windows-arm64.exe.cdx.json"} {
		content, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(content), name)
	}
	assert.Equal(t, want.String(), string(sums))
	assert.Len(t, entries, 5, "each file is in SHA256SUMS, except itself")

	var b bill
	content, err := os.ReadFile(filepath.Join(out, "pglatch-linux-amd64.cdx.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &b))
	assert.Equal(t, fixtureModule+" v0.1.0", b.Metadata.Component.Name+" "+b.Metadata.Component.Version)
	assert.Contains(t, b.Metadata.Component.Properties, property{"go:build:GOOS", "linux"})
	assert.Contains(t, b.Metadata.Component.Properties, property{"go:build:vcs.revision", r.mustGit(t, "rev-parse", "HEAD")})
	again := filepath.Join(t.TempDir(), "dist")
	require.NoError(t, binaries(t.Context(), r, again, []string{"linux/amd64"}))
	repeated, err := os.ReadFile(filepath.Join(again, "pglatch-linux-amd64.cdx.json"))
	require.NoError(t, err)
	assert.Equal(t, string(content), string(repeated), "the same commit has the same bill")
}

func TestWhatIsDeprecatedIsFound(t *testing.T) {
	t.Parallel()
	r := fixture(t)
	r.write(t, "thing/thing.go", `package thing

// A is old.
//
// Deprecated: use B.
func A() {}

// B is not Deprecated: it says so.
func B() {}

type T[V any] struct {
	// Deprecated: use D.
	C int
	D int
}

// Deprecated: use D.
func (*T[V]) E() {}

func (T[V]) F() {}

type I interface {
	// Deprecated: use H.
	G()
	H()
}

const (
	// Deprecated: use K.
	J = 1
	K = 2
)
`)
	names, err := deprecated(r.path("thing"))
	require.NoError(t, err)
	assert.Equal(t, map[string]bool{"A": true, "T.C": true, "T.E": true, "I.G": true, "J": true}, names)
	for line, want := range map[string]string{
		"- ./thing.A: removed": "A", "- A: removed": "A", "- ./leader/postgres.Config.C: removed": "Config.C", "- ./thing.(*T).E: removed": "T.E",
		"- ./thing.T.F, method set of T: removed": "T.F", "- package a/b: removed": "", "- ./thing.A: changed from int to string": "",
	} {
		name, _ := removed(line)
		assert.Equal(t, want, name, line)
	}
}
