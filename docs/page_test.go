// The tests of the documentation: every link leads somewhere, every Go program compiles and runs,
// every command does what its page says, every query is executed.
package docs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestMain(m *testing.M) { clitest.MainOf(m, "../cmd/pglatch") }

// A page is README or one of the pages beside this file.
type page struct {
	name, text string // name is relative to the root
}

// pages are all but the decisions, which say what was true when they were made.
func pages(t *testing.T) (all []page) {
	t.Helper()
	names := []string{"../README.md"}
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "adr" {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			names = append(names, path)
		}
		return err
	}))
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all = append(all, page{name: strings.TrimPrefix(filepath.Join("docs", name), "../"), text: string(text)})
	}
	return all
}

// A block is a piece of a page that is no prose.
type block struct {
	language, text string // the language is "" of an indented block
	line           int
}

// blocks are the fenced and the indented ones of a page.
func (p page) blocks() (all []block) {
	var b *block
	fenced, blank := false, true
	for i, line := range strings.Split(p.text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			if fenced = !fenced; fenced {
				all = append(all, block{language: strings.TrimPrefix(line, "```"), line: i + 2})
				b = &all[len(all)-1]
			} else {
				b = nil
			}
		case fenced:
			b.text += line + "\n"
		case strings.HasPrefix(line, "    ") && (b != nil || blank):
			if b == nil {
				all = append(all, block{line: i + 1})
				b = &all[len(all)-1]
			}
			b.text += strings.TrimPrefix(line, "    ") + "\n"
		case strings.TrimSpace(line) != "":
			b = nil
		}
		blank = strings.TrimSpace(line) == ""
	}
	return all
}

func TestABlockHasALanguageThatIsTested(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			// Indented ones and sh are commands; go, sql: see the tests; the others are not run.
			assert.Contains(t, []string{"", "sh", "go", "sql", "yaml", "text"}, b.language, "%s:%d", p.name, b.line)
		}
	}
}

func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(strings.Fields(string(readme))), 1000, "words: what is longer has a page of its own")
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are what the headings of a page are called in links to them.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			text := p.text
			if target != "" {
				path := filepath.Join("..", filepath.Dir(p.name), target)
				info, err := os.Stat(path)
				if !assert.NoError(t, err, "%s: %s", p.name, m[1]) || info.IsDir() {
					continue
				}
				content, err := os.ReadFile(path)
				require.NoError(t, err)
				text = string(content)
			}
			if anchor != "" {
				assert.Contains(t, anchors(text), anchor, "%s: %s", p.name, m[1])
			}
		}
	}
}

// kinds are the directories of the four kinds of page, with the words that begin their headings in docs/README.md.
var kinds = map[string]string{
	"docs/tutorials":   "Tutorials",
	"docs/how-to":      "How-to guides",
	"docs/reference":   "Reference",
	"docs/explanation": "Explanation",
}

// others are the directories of pages that have no kind, or one of their own.
var others = []string{"docs", "docs/coming-from"}

// maxWords is the longest page, without code blocks, tables and headings.
const maxWords = 1200

// prose counts the words of a page outside of code blocks, tables and headings.
func (p page) prose() (words int) {
	fenced := false
	for line := range strings.Lines(p.text) {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "|"), strings.HasPrefix(line, "    "), strings.HasPrefix(line, "#"):
		default:
			words += len(strings.Fields(line))
		}
	}
	return words
}

func TestProseIsCountedWithoutCodeTablesAndHeadings(t *testing.T) {
	t.Parallel()
	p := page{text: "# Not this\n\nFour words of prose.\n\n```go\nnot this\n```\n\n    nor this\n\n| nor | this |\n\n- and four here, too\n"}
	assert.Equal(t, 4+5, p.prose())
}

func TestEveryPageIsShortAndSaysWhomItIsFor(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		dir := path.Dir(p.name)
		if dir == "." {
			continue // README has a limit of its own
		}
		assert.LessOrEqual(t, p.prose(), maxWords, "words of %s: split it by its subject", p.name)
		if _, ok := kinds[dir]; !ok {
			assert.Contains(t, others, dir, "%s: a page is in docs/tutorials, docs/how-to, docs/reference or docs/explanation", p.name)
			continue
		}
		assert.Regexp(t, `\A# [^\n]+\n\nFor [a-z]`, p.text, "%s begins with its title, and with whom it is for", p.name)
	}
}

func TestTheIndexListsEveryPageOnceUnderItsKind(t *testing.T) {
	t.Parallel()
	all := pages(t)
	i := slices.IndexFunc(all, func(p page) bool { return p.name == "docs/README.md" })
	require.GreaterOrEqual(t, i, 0)
	under := map[string][]string{} // the headings under which the index has a link to a page
	heading := ""
	for line := range strings.Lines(all[i].text) {
		if text, ok := strings.CutPrefix(line, "## "); ok {
			heading = text
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if strings.HasPrefix(line, "- ") && !strings.Contains(m[1], "://") {
				name := path.Join("docs", m[1])
				under[name] = append(under[name], heading)
			}
		}
	}
	for _, p := range all {
		if path.Dir(p.name) == "." || p.name == "docs/README.md" {
			continue
		}
		target := strings.TrimPrefix(p.name, "docs/")
		if assert.Len(t, under[p.name], 1, "docs/README.md lists each page once: add a line such as\n\n- [Title](%s): what it has.", target) {
			assert.True(t, strings.HasPrefix(under[p.name][0], kinds[path.Dir(p.name)]), "docs/README.md lists %s under %q", target, under[p.name][0])
		}
	}
	assert.Len(t, under["docs/adr"], 1)
}

// Addresses of pages that were moved are in moved.json, so that the site redirects from them.
func TestEveryOldAddressLeadsToAPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("moved.json")
	require.NoError(t, err)
	var moved map[string]string
	require.NoError(t, json.Unmarshal(text, &moved))
	for _, old := range []string{
		"adapters", "cli", "deploy", "elections", "incidents", "interop", "lock-server", "once", "operations", "performance", "seams", "shards",
	} {
		assert.Contains(t, moved, "docs/"+old+".md")
	}
	for _, from := range slices.Sorted(maps.Keys(moved)) {
		old, _, _ := strings.Cut(from, "#")
		assert.Contains(t, moved, old, "the page of %s", from)
		assert.NoFileExists(t, filepath.Join("..", old), "a page that is there has not moved")
		target, anchor, _ := strings.Cut(moved[from], "#")
		content, err := os.ReadFile(filepath.Join("..", target))
		if assert.NoError(t, err, from) && anchor != "" {
			assert.Contains(t, anchors(string(content)), anchor, "%s → %s", from, moved[from])
		}
	}
}

var pageAddress = regexp.MustCompile(`\bdocs/(?:[a-z-]+/)?[\w-]+\.md\b`)

// Comments, commands and manifests name pages by their path.
func TestNoFileNamesAPageThatIsNotThere(t *testing.T) {
	t.Parallel()
	seen := 0
	require.NoError(t, filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != ".." && (strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".ci" || slices.Contains([]string{"node_modules", "dist", "bin", "results"}, entry.Name())) {
				return fs.SkipDir
			}
			return nil
		}
		made := []string{"page_test.go", "site_test.go", "site.test.mjs"} // tests with pages of their own
		if !slices.Contains([]string{"", ".go", ".md", ".py", ".mjs", ".ts", ".yml", ".yaml", ".txtar", ".html"}, filepath.Ext(name)) || slices.Contains(made, entry.Name()) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, address := range pageAddress.FindAllString(string(text), -1) {
			seen++
			assert.FileExists(t, filepath.Join("..", address), "%s names it", name)
		}
		return nil
	}))
	assert.Positive(t, seen, "the control")
}

// generator makes the pictures. It is no dependency: make pictures compiles it, which takes minutes, and a test only compares stamps.
const generator = "oss.terrastruct.com/d2@v0.7.2"

// embedded is a picture on a page: its text, and its file.
var embedded = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]+)\)`)

// generatorFlags make one file for light and dark: the viewer's preference selects the colors.
var generatorFlags = []string{"--theme", "0", "--dark-theme", "200", "--pad", "20", "--no-xml-tag"}

// stamp is the last line of a picture. It names the source and the generator that it was made from. XML allows no "--" in a comment.
func stamp(source []byte) string {
	flags := strings.ReplaceAll(strings.Join(generatorFlags, " "), "--", "")
	return fmt.Sprintf("<!-- %s %s of %x -->\n", generator, flags, sha256.Sum256(source))
}

// wellFormed returns the error of a text that is no XML, which browsers do not show.
func wellFormed(text []byte) error {
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// isMadeFrom reports whether a picture has the stamp of a source.
func isMadeFrom(picture, source []byte) bool { return bytes.HasSuffix(picture, []byte(stamp(source))) }

func TestEveryPictureIsMadeFromItsSource(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("img/*.d2")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, path := range sources {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		target := strings.TrimSuffix(path, ".d2") + ".svg"
		picture, err := os.ReadFile(target)
		if !isMadeFrom(picture, source) && os.Getenv("PGLATCH_PICTURES") != "" {
			picture, err = draw(t, path, source, target)
		}
		require.NoError(t, err)
		assert.True(t, isMadeFrom(picture, source), "%s is not made from %s: make pictures", target, path)
		require.NoError(t, wellFormed(picture), target)
		assert.True(t, isShown(t, filepath.Base(target)), "no page shows %s", target)
	}
}

// draw makes a picture anew.
func draw(t *testing.T, path string, source []byte, target string) ([]byte, error) {
	t.Helper()
	scratch := filepath.Join(t.TempDir(), "picture.svg")
	output, err := exec.CommandContext(t.Context(), "go", append(append([]string{"run", generator}, generatorFlags...), path, scratch)...).CombinedOutput() //nolint:gosec // make pictures
	require.NoError(t, err, "%s", output)
	picture, err := os.ReadFile(scratch)
	require.NoError(t, err)
	picture = append(bytes.TrimSpace(picture), "\n"+stamp(source)...)
	return picture, os.WriteFile(target, picture, 0o644) //nolint:gosec // the mode that git uses
}

// isShown reports whether a page embeds a picture, with a text for people who do not see it.
func isShown(t *testing.T, name string) bool {
	t.Helper()
	for _, p := range pages(t) {
		for _, m := range embedded.FindAllStringSubmatch(p.text, -1) {
			if filepath.Base(m[2]) == name {
				return len(m[1]) > 20
			}
		}
	}
	return false
}

// The control: another source, and a picture without a stamp.
func TestAPictureOfAnotherSourceIsFound(t *testing.T) {
	t.Parallel()
	picture := []byte("<svg></svg>\n" + stamp([]byte("a -> b")))
	require.NoError(t, wellFormed(picture))
	require.Error(t, wellFormed([]byte("<svg></svg>\n<!-- d2 --theme 0 -->\n")))
	assert.True(t, isMadeFrom(picture, []byte("a -> b")))
	assert.False(t, isMadeFrom(picture, []byte("a -> c")))
	assert.False(t, isMadeFrom([]byte("<svg></svg>\n"), []byte("a -> b")))
}

// The workflows of a fork, the templates and AGENTS.md name targets that make knows.
func TestFilesForContributorsNameTargetsThatExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	named := 0
	for _, pattern := range []string{"../.github/*.md", "../.github/workflows/*.yml", "../AGENTS.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile("(?:run: |`)make ([a-z-]+)").FindAllStringSubmatch(string(content), -1) {
				assert.Contains(t, string(makefile), "\n"+m[1]+":", file)
				named++
			}
		}
	}
	assert.Greater(t, named, 10)
}

func TestAReportOfAFaultAsksForWhatIsNeeded(t *testing.T) {
	t.Parallel()
	form, err := os.ReadFile("../.github/ISSUE_TEMPLATE/bug.yml")
	require.NoError(t, err)
	for _, field := range []string{"version", "server", "dsn", "pooler", "doctor"} {
		assert.Regexp(t, `(?s)id: `+field+`\n.{1,700}?required: true`, string(form))
	}
}

// takeShedLock is what ShedLock sends to PostgreSQL with usingDbTime, with its parameters filled in.
const takeShedLock = `INSERT INTO shedlock(name, lock_until, locked_at, locked_by)
VALUES ('closeTheBooks', timezone('utc', CURRENT_TIMESTAMP) + interval '600000 milliseconds', timezone('utc', CURRENT_TIMESTAMP), 'a JVM')
ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '600000 milliseconds',
	locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'a JVM'
WHERE shedlock.name = 'closeTheBooks' AND shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP)`

func TestTheProgramThatRunsBesideShedLockExcludesIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	jvmTakes := func() bool {
		tag, err := conn.Exec(t.Context(), takeShedLock)
		require.NoError(t, err)
		return tag.RowsAffected() == 1
	}
	program := filepath.Join(t.TempDir(), "program")
	build(t, strings.ReplaceAll(firstProgramOf(t, "docs/coming-from/shedlock.md"), "postgres://localhost/shop", dsn), program)
	run := func() (said string) {
		p := clitest.StartCommand(t, nil, program)
		require.Zero(t, p.Wait(), p.Stderr.String())
		return p.Stderr.String()
	}

	assert.Contains(t, run(), "closes the books", "the row is free")
	assert.False(t, jvmTakes(), "for lockAtLeastFor after the program took the row")

	_, err := conn.Exec(t.Context(), `UPDATE shedlock SET lock_until = timezone('utc', now()); DELETE FROM pglatch_once`)
	require.NoError(t, err)
	require.True(t, jvmTakes(), "the control: the row can be taken")
	assert.NotContains(t, run(), "closes the books", "a JVM has the row")
	var who string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT locked_by FROM shedlock WHERE lock_until > timezone('utc', now())").Scan(&who))
	assert.Equal(t, "a JVM", who)
}

// firstProgramOf is the first whole program of a page.
func firstProgramOf(t *testing.T, name string) string {
	t.Helper()
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if p.name == name && b.language == "go" && strings.HasPrefix(b.text, "package ") {
				return b.text
			}
		}
	}
	require.Fail(t, "the page has no program", name)
	return ""
}
