// The tests of the documentation: every link leads somewhere, every Go program compiles and runs,
// every command does what its page says, every query is executed.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
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
