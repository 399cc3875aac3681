package browser_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
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

// axeVersion is that of the checker of accessibility, which npm fetches.
const axeVersion = "4.10.3"

var axe struct {
	once   sync.Once
	source string
	err    error
}

// axeSource is axe-core. It is fetched once, and not kept with this module.
func axeSource(t *testing.T) string {
	t.Helper()
	axe.once.Do(func() {
		dir := t.TempDir()
		npm := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "axe-core@"+axeVersion)
		if out, err := npm.CombinedOutput(); err != nil {
			axe.err = fmt.Errorf("npm: %w: %s", err, out)
			return
		}
		source, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
		axe.source, axe.err = string(source), err
	})
	require.NoError(t, axe.err, "NOT RUN: axe-core cannot be had")
	return axe.source
}

// accessible requires that axe finds nothing in what is shown.
func (b *browser) accessible(what string) {
	b.t.Helper()
	if !eval[bool](b, "typeof axe === 'object'") {
		eval[string](b, axeSource(b.t)+"; ''")
	}
	found := eval[[]string](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.flatMap(v =>
		v.nodes.map(n => v.id + ": " + v.help + "\n  " + n.html + "\n  " + (n.failureSummary || ""))))`)
	require.Empty(b.t, found, "%s:\n%s", what, strings.Join(found, "\n"))
}

func TestMain(m *testing.M) {
	proctest.Play(serves, runProcess)
	pgtest.Main(m)
}

// serve serves the page of a database and returns its address.
func serve(t *testing.T, config monitor.Config) string {
	t.Helper()
	if config.Record == 0 {
		config.Record = time.Second
	}
	m, err := monitor.Open(config)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return listen(t, m.Page())
}

// listen serves a handler below /locks/.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/locks/", h)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return "http://" + listener.Addr().String() + "/locks/"
}

// serves is the role of a process of the fleet.
const serves = "service"

type processConfig struct{ Name, DSN string }

var (
	orders    = namespace.Must(1, "order")
	customers = namespace.Must(2, "customer")
	reports   = namespace.Must(3, "report")
)

// A process is one of the fleet.
type process struct{ *proctest.Process }

// start starts one, which does what do says until the test ends.
func start(t *testing.T, dsn, name string) process {
	t.Helper()
	return process{proctest.Start(t, proctest.As(t, serves, processConfig{name, dsn}))}
}

// do has the process do something, and returns when it has begun.
func (p process) do(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	p.Tell(line)
	p.Expect("ok " + line)
}

// A member is the other side: what a process does.
type member struct {
	locker *advisory.Locker
	name   string
	dsn    string
	work   sync.WaitGroup
	held   map[string]*advisory.Lock
}

// runProcess is the program of a process.
func runProcess(ctx context.Context, c processConfig) error {
	locker, err := advisory.Open(ctx, advisory.Config{DSN: c.DSN, ApplicationName: c.Name, MaxConns: 40, Wait: advisory.NoTimeout, Answer: answer(c.Name)})
	if err != nil {
		return err
	}
	m := &member{locker: locker, name: c.Name, dsn: c.DSN, held: map[string]*advisory.Lock{}}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := m.do(ctx, in.Text()); err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		fmt.Println("ok " + in.Text())
	}
	return nil
}

// answer says which program it plays.
func answer(name string) introspect.Config {
	service, _, _ := strings.Cut(name, "-")
	return introspect.Config{Service: service, Version: "v1.8.2"}
}

func parse(text string) (namespace.Key, error) {
	set, err := namespace.NewSet(orders, customers, reports)
	if err != nil {
		return namespace.Key{}, err
	}
	return set.Parse(text)
}

// do does "hold KEY [LABEL]", "wait KEY [holding KEY] [LABEL]", "release KEY" or "lead".
func (m *member) do(ctx context.Context, line string) error {
	words := strings.Fields(line)
	if words[0] == "lead" {
		return m.lead(ctx)
	}
	key, err := parse(words[1])
	if err != nil {
		return err
	}
	label := ""
	switch words[0] {
	case "hold":
		label = strings.Join(words[2:], " ")
		lock, err := m.locker.With(advisory.Options{Label: label}).Acquire(ctx, key)
		m.held[words[1]] = lock
		return err
	case "release":
		return m.held[words[1]].Release()
	case "wait":
		rest := words[2:]
		if len(rest) > 1 && rest[0] == "holding" {
			ctx, rest = m.held[rest[1]].Context(), rest[2:]
		}
		label = strings.Join(rest, " ")
		m.work.Go(func() {
			if lock, err := m.locker.With(advisory.Options{Label: label}).Acquire(ctx, key); err == nil {
				_ = lock.Release()
			}
		})
		return nil
	}
	return errors.New("nothing that a process does")
}

// lead takes part in the election "scheduler".
func (m *member) lead(ctx context.Context) error {
	backend, err := postgres.New(postgres.Config{DSN: m.dsn, Key: namespace.Pair(9, 100), CreateTable: true})
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Config{Name: "scheduler", Identity: m.name, Backend: backend})
	if err != nil {
		return err
	}
	return elector.Start(ctx)
}
