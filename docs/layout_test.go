package docs_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
		made := []string{"layout_test.go", "site_test.go", "site.test.mjs"} // tests with pages of their own
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
