package browser_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/monitor"
)

// A fleet is processes that hold and wait.
type fleet struct {
	dsn                          string
	billing1, billing2, shipping process
}

// incident is a fleet in trouble: two processes in a deadlock, a queue behind it, an election, and quiet locks.
func incident(t *testing.T) fleet {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{})
	conn, err := pgx.Connect(t.Context(), server.DSN(""))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE shop")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	f := fleet{dsn: server.DSN("shop")}
	f.billing1, f.billing2, f.shipping = start(t, f.dsn, "billing-1"), start(t, f.dsn, "billing-2"), start(t, f.dsn, "shipping-1")
	f.billing1.do("hold order/7 settle invoice 4711")
	f.billing2.do("hold customer/42 change address")
	f.shipping.do("hold report/2026-q1 nightly totals")
	f.shipping.do("hold order/9")
	f.billing1.do("wait customer/42 holding order/7 settle invoice 4711")
	f.billing2.do("wait order/7 holding customer/42 change address")
	for range 3 {
		f.shipping.do("wait order/7 pack parcel")
	}
	f.billing1.do("wait report/2026-q1 month end")
	f.billing1.do("lead")
	f.billing2.do("lead")
	return f
}

func TestAnIncidentIsSeenAndNamed(t *testing.T) {
	t.Parallel()
	f := incident(t)
	address := serve(t, monitor.Config{DSN: f.dsn})
	b := browse(t)
	b.open(address)
	b.until(".verdicts", "Deadlock: billing-1 and billing-2")
	for _, word := range []string{"billing-1 (settle invoice 4711) holds order/7", "billing-2 (change address) holds customer/42", "for order/7", "for customer/42"} {
		b.until(".verdicts .card", word)
	}
	b.until("#rows", "report/2026-q1")
	b.until("#rows tr", "nightly totals")
	b.until("#live", "live")
	b.untilTrue("[...document.querySelectorAll('#rows .tag')].filter(e => e.innerText.includes('deadlock')).length === 2") // both keys are marked
	b.picture("now")
	b.do(click("#rows tr a"))
	b.until("[data-part=key] .copier", "Copy")
	b.do(chromedp.NavigateBack())
	b.until("#live", "live, ")
	assert.Len(t, strings.Split(b.text(".verdicts .card.critical .more a"), "\n"), 4, "a link for each key, one for the incident, one for what it means")
	b.do(click(".verdicts .card.critical [id$=-incident]"))
	b.until("[data-part=incident] .card", "Deadlock: billing-1 and billing-2")
	b.until("[data-part=incident] .events", "raised")
	b.accessible("incident")
	permalink := eval[string](b, "location.href")

	b.open(address + "?find=order")
	b.until("#live", "live, ")
	b.do(chromedp.EvaluateAsDevTools("[...document.querySelectorAll('thead a')].find(e => e.innerText === 'Waiting').click()", nil))
	b.untilTrue("location.search.includes('sort=waiting') && location.search.includes('find=order') && document.querySelector('th[aria-sort=descending]')?.innerText === 'Waiting'")
	b.until("#rows tr:first-child", "order/7")
	b.until("#live", "live, ")
	eval[bool](b, "document.getElementById('find').value = 'order/9', document.getElementById('find').dispatchEvent(new Event('input', {bubbles: true}))")
	b.untilTrue("location.search.includes('sort=waiting') && document.querySelectorAll('#rows tr').length === 1")
	b.untilTrue("[...document.querySelectorAll('thead a')].every(e => e.search.includes('find=order%2F9'))") // another order keeps what is typed
	b.open(permalink)
	b.until("[data-part=incident] .card", "Deadlock: ")

	b.do(chromedp.EmulateViewport(390, 844))
	b.open(address + "graph")
	const seen = "(() => { const d = document.querySelector('.drawing').getBoundingClientRect(); return [...document.querySelectorAll('line.cycle')].some(e => { const r = e.getBoundingClientRect(); " +
		"return r.left >= d.left && r.right <= d.right && r.top >= d.top && r.bottom <= d.bottom }) })()"
	b.untilTrue(seen)
	assert.False(t, eval[bool](b, "document.querySelector('.drawing').scrollTo(0, 0), "+seen), "control: it is not at the beginning of the drawing")
	b.do(chromedp.EmulateViewport(1280, 900))
	b.open(address + "graph")
	b.until("[data-part=graph]", "They wait for each other")
	b.untilTrue("document.querySelectorAll('.graph line.cycle').length === 4") // two processes and two keys in a circle
	b.picture("graph")

	b.open(address + "elections")
	b.until("[data-part=elections]", "billing-1 leads for")
	b.until("[data-part=elections] tbody", "billing-2")
	b.picture("elections")

	b.open(address + "?find=order/7")
	b.until("#rows", "order/7")
	b.do(click("#rows tr a"))
	b.until("[data-part=key] h1", "order/7")
	b.untilTrue("document.querySelectorAll('[aria-label=Waiters] tbody tr').length === 4") // billing-2, and three of shipping-1
	b.until("[aria-label=Waiters] tbody", "in the process")
	b.until("[aria-label=Waiters] tbody", "customer/42") // what the caller holds meanwhile
	assert.Contains(t, b.text("pre"), "pg_terminate_backend")
	assert.Contains(t, b.text("pre"), "(1, 7, 2)")
	b.picture("key")
	b.clean(address)
}

func TestAProcessThatIsStoppedIsNamedAndThePastKeepsIt(t *testing.T) {
	t.Parallel()
	f := incident(t)
	address := serve(t, monitor.Config{DSN: f.dsn})
	b := browse(t)
	b.open(address)
	b.until("#rows tr", "nightly totals")
	f.shipping.Signal(syscall.SIGSTOP)
	b.until(".verdicts .card.critical", "shipping-1 holds report/2026-q1 and has not answered")
	b.until(".status", "1 silent")
	b.until("#announce", "New: ")
	b.until("#rows", "order/9") // its keys keep their names
	b.picture("silent")
	f.shipping.Signal(syscall.SIGCONT)
	b.untilTrue("!document.querySelector('.verdicts').innerText.includes('has not answered')")

	b.open(address + "happened")
	b.until("[data-part=past]", "no longer: shipping-1 holds report/2026-q1")
	b.picture("happened")
	b.do(chromedp.EvaluateAsDevTools("[...document.querySelectorAll('[data-part=past] li')].find(e => e.innerText.includes('raised') && e.innerText.includes('report/2026-q1')).querySelector('a').click()", nil))
	b.until("main", "shipping-1 held report/2026-q1 for")
	b.until("main .card", "shipping-1 holds report/2026-q1 and has not answered")
	b.picture("at")
	b.clean(address)
}

func TestThePageIsLiveAndHonestWhenItIsNot(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p := start(t, dsn, "billing-1")
	p.do("hold order/1")
	m, err := monitor.Open(monitor.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	var cut atomic.Bool
	page := m.Page()
	address := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cut.Load() {
			panic(http.ErrAbortHandler)
		}
		if strings.HasSuffix(r.URL.Path, "/live") {
			w = &cutter{w, &cut}
		}
		page.ServeHTTP(w, r)
	}))
	b := browse(t)
	b.open(address)
	b.until("#rows", "order/1")
	eval[bool](b, "window.same = true")
	p.do("hold order/2")
	b.until("#rows", "order/2")
	p.do("release order/1")
	b.untilTrue("!document.getElementById('rows').innerText.includes('order/1')")
	assert.True(t, eval[bool](b, "window.same === true"), "without another load")
	b.until("#live", "live, ")

	cut.Store(true)
	b.until("#banner", "is lost")
	b.until("#banner", "Shown is what was so at")
	assert.Contains(t, b.text("#live"), "not live")
	assert.Contains(t, b.text("#rows"), "order/2", "the last picture stays")
	b.picture("lost")
	b.accessible("lost")
	frozen := b.text("#rows .age")
	cut.Store(false)
	b.until("#live", "live, ")
	b.untilTrue("document.getElementById('banner').hidden")
	b.untilTrue("[...document.querySelectorAll('#rows .age')].map(e => e.innerText).join('\\n') !== " + quote(frozen))

	b.do(click("#pause"))
	b.until("#live", "paused at")
	p.do("hold order/3")
	b.do(click("#pause"))
	b.until("#rows", "order/3")
}

// A cutter ends a stream when it is told to.
type cutter struct {
	http.ResponseWriter
	cut *atomic.Bool
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutter) Write(p []byte) (int, error) {
	if c.cut.Load() {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(p)
}

func TestThePageIsWholeWithoutJavaScript(t *testing.T) {
	t.Parallel()
	f := incident(t)
	address := serve(t, monitor.Config{DSN: f.dsn})
	b := browse(t)
	b.do(emulation.SetScriptExecutionDisabled(true))
	await.Until(t, patience, func() bool {
		var text string
		b.do(chromedp.Navigate(address), chromedp.Text("body", &text, chromedp.ByQuery))
		return strings.Contains(text, "Deadlock: ") && strings.Contains(text, "report/2026-q1") && strings.Contains(text, "nightly totals")
	})
	for view, want := range map[string]string{"graph": "They wait for each other", "elections": "leads for", "happened": "Deadlock"} {
		var text string
		await.Until(t, patience, func() bool {
			b.do(chromedp.Navigate(address+view), chromedp.Text("main", &text, chromedp.ByQuery))
			return strings.Contains(text, want)
		}, "%s", lazy(func() string { return view + ": " + text }))
	}
	b.clean(address)
}

func TestThePageWorksWithTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	f := incident(t)
	address := serve(t, monitor.Config{DSN: f.dsn})
	b := browse(t)
	b.open(address)
	b.until("#rows", "order/9")
	b.until("#live", "live, ") // the script runs
	b.do(press("/"))
	assert.Equal(t, "find", eval[string](b, "document.activeElement.id"))
	b.do(chromedp.KeyEvent("order/9"))
	b.untilTrue("document.getElementById('find').value === 'order/9'")
	b.untilTrue("document.getElementById('rows').innerText.includes('order/9') && !document.getElementById('rows').innerText.includes('report')")
	b.untilTrue("location.search.includes('find=order')")
	b.do(chromedp.KeyEvent(kb.Escape), press("j"))
	assert.Equal(t, "order/9", eval[string](b, "document.activeElement.innerText"))
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("[data-part=key] h1", "order/9")
	for key, title := range map[string]string{"1": "Now", "2": "Who waits for whom", "3": "Elections and leases", "4": "What happened"} {
		b.until("#live", "live, ") // the script runs
		b.do(press(key))
		b.untilTrue("document.title.startsWith(" + quote(title) + ")")
	}
}

// press presses a key that has a character, which is typed unless the page takes the key for itself.
func press(key string) chromedp.Action {
	return chromedp.Tasks{
		input.DispatchKeyEvent(input.KeyDown).WithKey(key).WithText(key),
		input.DispatchKeyEvent(input.KeyUp).WithKey(key),
	}
}

func TestThePageIsAccessibleInEachViewColorAndSize(t *testing.T) {
	t.Parallel()
	f := incident(t)
	address := serve(t, monitor.Config{DSN: f.dsn})
	b := browse(t)
	b.open(address)
	b.until(".verdicts", "Deadlock: ")
	b.until("#rows tr", "nightly totals")
	key := eval[string](b, "document.querySelector('#rows a').getAttribute('href')")
	for _, size := range []struct{ width, height int64 }{{320, 640}, {1280, 900}, {3840, 2160}} {
		for _, dark := range []bool{false, true} {
			b.dark(dark)
			b.do(chromedp.EmulateViewport(size.width, size.height))
			for name, view := range map[string]string{"now": "", "graph": "graph", "elections": "elections", "happened": "happened", "key": key, "at": "at?t=" + time.Now().UTC().Format("15:04:05")} {
				b.open(address + view)
				what := fmt.Sprintf("%s-%d", name, size.width)
				if dark {
					what += "-dark"
				}
				if name == "now" || name == "graph" {
					b.picture(what)
				}
				b.accessible(what)
				assert.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), size.width, "%s is wider than the screen", what)
			}
		}
	}
	b.clean(address)
}

func TestTwentyThousandLocksAreOnePage(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_locks_per_transaction": "600"}})
	dsn := server.DSN("")
	conn := pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(1, i) FROM generate_series(1, 20000) i")
	require.NoError(t, err)
	p := start(t, dsn, "billing-1")
	p.do("hold customer/1")
	address := serve(t, monitor.Config{DSN: dsn})
	b := browse(t)
	b.open(address)
	b.until(".paging", "1–100 of 20,001")
	b.until("#live", "live")
	b.open(address)
	b.untilTrue("performance.getEntriesByName('first-contentful-paint').length > 0")
	paint := eval[float64](b, "performance.getEntriesByName('first-contentful-paint')[0].startTime")
	b.untilTrue("performance.getEntriesByName('pglatch update').length > 0")
	update := eval[float64](b, "performance.getEntriesByName('pglatch update')[0].duration")
	assert.Equal(t, 100, eval[int](b, "document.querySelectorAll('#rows tr').length"))
	b.do(chromedp.SendKeys("#find", "customer", chromedp.ByQuery))
	b.until(".paging", "1–1 of 1, which match of 20,001")
	t.Logf("20,001 locks: first paint after %.0f ms, an update is shown in %.1f ms", paint, update)
}

func TestALabelOf3000BytesDoesNotFillThePageNorTurnItsWords(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	start(t, dsn, "billing-1").do("hold order/7 %s", strings.Repeat("x", 1500)+"\u202e"+strings.Repeat("y", 1500))
	start(t, dsn, "billing-2").do("hold order/8 a\u202etxt")
	address := serve(t, monitor.Config{DSN: dsn})
	b := browse(t)
	b.open(address)
	b.until("#rows", "order/7")
	b.until("#rows", "a?txt")
	b.until("#rows", "xxx…") // it is cut
	assert.Less(t, eval[int](b, "document.documentElement.scrollHeight"), 1500)
	assert.LessOrEqual(t, eval[int](b, "document.documentElement.scrollWidth"), eval[int](b, "window.innerWidth"))
	b.clean(address)
}

func TestSeveralDatabasesAreOnOnePage(t *testing.T) {
	t.Parallel()
	prod, staging := pgtest.DSN(t), pgtest.DSN(t)
	holder, waiter := start(t, prod, "billing-1"), start(t, prod, "billing-2")
	holder.do("hold order/1 settle")
	waiter.do("wait order/1")
	start(t, staging, "billing-9").do("hold order/2")
	var monitors []*monitor.Monitor
	for name, dsn := range map[string]string{"prod": prod, "staging": staging, "gone": "postgres://nobody@127.0.0.1:1/shop?sslmode=disable"} {
		m, err := monitor.Open(monitor.Config{Name: name, DSN: dsn, LongHold: map[bool]time.Duration{true: time.Second}[name == "prod"], Record: time.Second})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		monitors = append(monitors, m)
	}
	site, err := monitor.NewSite(monitors...)
	require.NoError(t, err)
	address := listen(t, site)
	b := browse(t)
	b.open(address)
	b.until("#live", "live, ")
	b.until("[aria-label=Databases] tr", "gone")
	b.until("[aria-label=Databases] tr.critical", "does not answer")
	b.until("[aria-label=Databases] tr.warning", "1 warning")
	b.until(".verdicts .card", "prod billing-1 has held order/1")
	b.accessible("databases")
	b.picture("databases")
	assert.NotContains(t, b.text(".verdicts"), "staging", "a neighbour hides nothing, and is not blamed")
	b.do(click(".verdicts .more a"))
	b.until("[data-part=key] h1", "order/1")
	b.until("[aria-label=Holders]", "settle")
	b.do(click(".brand a"))
	b.until("#live", "live, ")
	b.do(click("#d-staging"))
	b.until(".brand", "staging:")
	b.until("#rows", "order/2")
	assert.NotContains(t, b.text("#rows"), "order/1")
	b.do(chromedp.EmulateViewport(320, 640))
	b.open(address)
	b.accessible("databases-320")
	assert.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), int64(320))
	b.clean(address)
}
