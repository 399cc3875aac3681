package browser_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
)

const patience = await.Patience

// A browser is a tab of a Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string // addresses
	problems []string // of the console, and of the policy
}

// chromium finds the program.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	require.Fail(t, "NOT RUN: no Chromium. Debian: apt-get install chromium; or set CHROMIUM")
	return ""
}

// browse opens a tab of a new Chromium of its own.
func browse(t *testing.T) *browser {
	t.Helper()
	dir, err := os.MkdirTemp("", "chromium") //nolint:usetesting // t.TempDir fails if its processes still write
	require.NoError(t, err)
	t.Cleanup(func() { // its processes write until the last of them has ended
		await.Until(t, patience, func() bool { return os.RemoveAll(dir) == nil })
	})
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(chromium(t)), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(dir), chromedp.WSURLReadTimeout(patience),
	}
	ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // it ends by itself
		closeTab()
		chromedp.FromContext(ctx).Allocator.Wait()
	})
	b := &browser{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, b.hear)
	b.do(network.Enable(), runtime.Enable(), cdplog.Enable(), page.Enable(), chromedp.EmulateViewport(1280, 900))
	return b
}

func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError {
			b.problems = append(b.problems, string(e.Args[0].Value))
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError {
			b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// clean says that the page asked nobody but its server, and broke no rule.
func (b *browser) clean(origin string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	assert.Empty(b.t, b.problems)
	for _, r := range b.requests {
		assert.True(b.t, strings.HasPrefix(r, origin) || strings.HasPrefix(r, "about:") || strings.HasPrefix(r, "data:image/"), r)
	}
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Run(b.ctx)) // the first run of a tab must not have the timeout's context
	require.NoError(b.t, chromedp.Run(ctx, actions...))
}

func (b *browser) open(url string) { b.t.Helper(); b.do(chromedp.Navigate(url)) }

// eval is the value of an expression.
func eval[T any](b *browser, expression string) (value T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &value, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return value
}

// text is what the elements of a selector show.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, "[...document.querySelectorAll("+quote(selector)+")].map(e => e.innerText).join('\\n')")
}

func quote(s string) string { return "`" + s + "`" }

// until waits until an element shows a text.
func (b *browser) until(selector, text string) {
	b.t.Helper()
	b.untilTrue("[...document.querySelectorAll(" + quote(selector) + ")].some(e => e.innerText.includes(" + quote(text) + "))")
}

func (b *browser) untilTrue(expression string) {
	b.t.Helper()
	is := func() (yes bool) {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		err := chromedp.Run(ctx, chromedp.Evaluate(expression, &yes))
		if e := new(cdproto.Error); errors.As(err, &e) {
			return false // the page is on its way to another address
		}
		return assert.NoError(b.t, err) && yes
	}
	await.Until(b.t, patience, is, "%s\n%s", expression, lazy(func() string { return b.text("body") }))
}

// A lazy text is made when it is printed.
type lazy func() string

func (l lazy) String() string { return l() }

// dark sets the colors that the user prefers.
func (b *browser) dark(on bool) {
	b.t.Helper()
	value := "light"
	if on {
		value = "dark"
	}
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}))
}

// picture saves a screenshot of the whole page among the artefacts.
func (b *browser) picture(name string) {
	b.t.Helper()
	var png []byte
	b.do(chromedp.FullScreenshot(&png, 100))
	b.save(name, png)
}

// view saves a screenshot of what the window shows. Unlike picture, it does not resize the window, which closes menus.
func (b *browser) view(name string) {
	b.t.Helper()
	var png []byte
	b.untilTrue("document.getAnimations().every(a => a.playState !== 'running')")
	b.do(chromedp.CaptureScreenshot(&png))
	b.save(name, png)
}

func (b *browser) save(name string, png []byte) {
	b.t.Helper()
	dir := os.Getenv("PGLATCH_ARTIFACTS")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "pglatch-browser")
	}
	require.NoError(b.t, os.MkdirAll(dir, 0o755))
	file := filepath.Join(dir, name+".png")
	require.NoError(b.t, os.WriteFile(file, png, 0o644)) //nolint:gosec // for people
	b.t.Log("screenshot: " + file)
}

func click(selector string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		for {
			err := chromedp.Click(selector, chromedp.ByQuery).Do(ctx)
			if e := new(cdproto.Error); !errors.As(err, &e) {
				return err
			}
			// A live page replaced the element before it was clicked.
		}
	})
}
