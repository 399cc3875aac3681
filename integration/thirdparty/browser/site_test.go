package browser_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

var site struct {
	once  sync.Once
	built error
}

// openSite builds the documentation site once, serves it, and returns its address and the name of its longest page with code.
func openSite(t *testing.T) (address, longest string) {
	t.Helper()
	site.once.Do(func() {
		if out, err := exec.CommandContext(t.Context(), "make", "-C", root, "docs").CombinedOutput(); err != nil {
			site.built = fmt.Errorf("make docs: %w\n%s", err, out)
		}
	})
	require.NoError(t, site.built, "NOT RUN: there is no documentation site")
	files := os.DirFS(filepath.Join(root, "site", "dist"))
	length := 0
	require.NoError(t, fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".html" {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if bytes.Contains(text, []byte(`class="copy"`)) && len(text) > length {
			longest, length = name, len(text)
		}
		return err
	}))
	require.NotEmpty(t, longest, "a page with code")
	server := httptest.NewServer(http.FileServerFS(files))
	t.Cleanup(server.Close)
	return server.URL + "/", longest
}

// fits checks that the page is no wider than the window.
func (b *browser) fits(what string) {
	b.t.Helper()
	assert.LessOrEqual(b.t, eval[int](b, "document.documentElement.scrollWidth"), eval[int](b, "document.documentElement.clientWidth"), "%s is wider than the screen", what)
}

// ready waits until the scripts of the site run: they add the search.
func (b *browser) ready() {
	b.t.Helper()
	b.untilTrue("document.querySelector('#app')?.__vue_app__ !== undefined")
}

func TestTheSiteIsAccessibleInEachColorAndSize(t *testing.T) {
	t.Parallel()
	address, longest := openSite(t)
	b := browse(t)
	for _, size := range []struct{ width, height int64 }{{390, 844}, {1280, 900}} {
		for _, dark := range []bool{false, true} {
			b.dark(dark)
			b.do(chromedp.EmulateViewport(size.width, size.height))
			for name, page := range map[string]string{"index": "", "long": longest, "missing": "404.html"} {
				what := fmt.Sprintf("site-%s-%d", name, size.width)
				if dark {
					what += "-dark"
				}
				b.open(address + page)
				b.ready()
				assert.Equal(t, dark, eval[bool](b, "document.documentElement.classList.contains('dark')"), what)
				b.view(what)
				b.accessible(what)
				b.fits(what)
				if eval[bool](b, "document.querySelector('.vp-doc table') !== null") {
					eval[bool](b, "document.querySelector('.vp-doc table').scrollIntoView(); true")
					b.view(what + "-table")
				}
				assert.Equal(t, 0, eval[int](b, "[...document.querySelectorAll('.vp-doc pre')].filter(e => !e.parentElement.querySelector('button.copy')).length"), "%s: a block has no copy button", what)
			}
			what := fmt.Sprintf("site-search-%d-%t", size.width, dark)
			b.search("PgBouncer")
			b.view(what)
			b.accessible(what)
			b.fits(what)
		}
	}
	b.clean(address)
}

// search opens the search, types a word, and waits until a result is selected.
func (b *browser) search(word string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent("/"))
	b.untilTrue("document.activeElement.id === 'localsearch-input'")
	b.do(chromedp.KeyEvent(word))
	b.untilTrue("document.querySelector('.VPLocalSearchBox .result.selected') !== null")
}

func TestTheSearchOfTheSiteFindsAPage(t *testing.T) {
	t.Parallel()
	address, _ := openSite(t)
	b := browse(t)
	b.open(address)
	b.ready()
	b.search("fencing")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.untilTrue("location.hash !== '' && document.querySelector('.VPLocalSearchBox') === null")
	b.until("main", "fencing")
	b.clean(address)
}

func TestABlockOfTheSiteIsCopied(t *testing.T) {
	t.Parallel()
	address, page := openSite(t)
	b := browse(t)
	b.open(address + page)
	b.ready()
	eval[bool](b, "navigator.clipboard.writeText = async text => { window.copied = text }; true")
	b.do(chromedp.Evaluate("document.querySelector('button.copy').click()", nil))
	b.untilTrue("window.copied !== undefined")
	assert.Equal(t, eval[string](b, "document.querySelector('.vp-doc pre code').innerText.trim()"), strings.TrimSpace(eval[string](b, "window.copied")))
}

func TestTheMenusOfTheSiteOpenOnASmallScreen(t *testing.T) {
	t.Parallel()
	address, _ := openSite(t)
	b := browse(t)
	b.do(chromedp.EmulateViewport(390, 844))
	b.open(address)
	b.ready()
	b.do(click(".VPNavBarHamburger"))
	b.untilTrue("document.querySelector('.VPNavScreen .VPSwitchAppearance') !== null")
	b.view("site-navigation-390")
	b.accessible("navigation")
	b.do(click(".VPNavScreen .VPSwitchAppearance"))
	b.untilTrue("document.documentElement.classList.contains('dark')")
	b.do(click(".VPNavBarHamburger"))
	b.untilTrue("document.querySelector('.VPNavScreen') === null")
	b.do(click(".VPLocalNav .menu"))
	b.until(".VPSidebar.open", "Project")
	b.view("site-menu-390")
	b.accessible("menu")
	b.fits("menu")
	b.clean(address)
}

func TestABrokenLinkOrAnchorIsAnErrorOfTheSite(t *testing.T) {
	t.Parallel()
	openSite(t) // it installs the packages
	packages, err := filepath.Abs(filepath.Join(root, "site", "node_modules"))
	require.NoError(t, err)
	build := func(page string) (string, error) {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "site", ".vitepress", "theme"), 0o700))
		for name, text := range map[string]string{
			"README.md": "# Home\n", "LICENSE": "", "docs/README.md": page, "docs/how-to/page.md": "# A page\n\n## It's a heading\n", "docs/moved.json": `{"page.md": "how-to/page.md"}`,
		} {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		for _, pattern := range []string{"package.json", "*.mjs", ".vitepress/*.mjs", ".vitepress/theme/*"} {
			names, err := fs.Glob(os.DirFS(filepath.Join(root, "site")), pattern)
			require.NoError(t, err)
			for _, name := range names {
				text, err := os.ReadFile(filepath.Join(root, "site", name))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(dir, "site", name), text, 0o600))
			}
		}
		require.NoError(t, os.Symlink(packages, filepath.Join(dir, "site", "node_modules")))
		cmd := exec.CommandContext(t.Context(), "npm", "run", "build", "--silent")
		cmd.Dir = filepath.Join(dir, "site")
		out, err := cmd.CombinedOutput()
		if err == nil {
			moved, err := os.ReadFile(filepath.Join(dir, "site", "dist", "page.html"))
			require.NoError(t, err)
			assert.Contains(t, string(moved), `href="how-to/page.html"`)
			index, err := os.ReadFile(filepath.Join(dir, "site", "dist", "index.html"))
			require.NoError(t, err)
			assert.Contains(t, string(index), "How-to guides")
			assert.Contains(t, string(index), "https://github.com/pglatch/pglatch/blob/main/LICENSE")
		}
		return string(out), err
	}
	out, err := build("# Index\n\n[A page](how-to/page.md#its-a-heading) of {{ many }}, the [license](../LICENSE)\n")
	require.NoError(t, err, out)
	for page, wants := range map[string][]string{
		"# Index\n\n[A page](how-to/pages.md)\n": {"docs/README.md: the link how-to/pages.md leads nowhere"},
		"# Index\n\n[A page](how-to/page.md#its-no-heading), [a heading](#no-heading)\n": {
			"index.html: /how-to/page.html#its-no-heading leads to no element", "index.html: #no-heading leads to no element",
		},
		"# Index\n\n![a picture](no.png)\n": {"no.png"},
	} {
		out, err := build(page)
		require.Error(t, err, page)
		for _, want := range wants {
			assert.Contains(t, out, want)
		}
	}
}
