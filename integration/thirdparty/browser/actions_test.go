package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/lease"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
)

// The tokens of people.
const (
	lookToken = "look-0123456789abcdef"
	endToken  = "end-0123456789abcdef"
)

// A desk is a program that serves the page with actions.
type desk struct {
	*proctest.Process

	address, audit, people string // the page, and files
}

// actions serves the page with actions, and returns its address and the file of its audit.
func actions(t *testing.T, dsn string) (address, audit string) {
	t.Helper()
	d := newDesk(t, dsn)
	return d.address, d.audit
}

// newDesk serves the page with actions to lea, who may look, and to eva, who may end.
func newDesk(t *testing.T, dsn string) desk {
	t.Helper()
	dir := t.TempDir()
	program, people := filepath.Join(dir, "pglatch"), filepath.Join(dir, "people")
	audit := filepath.Join(dir, "audit")
	require.NoError(t, gobuild.Program(t.Context(), "../../../cmd/pglatch", program))
	require.NoError(t, os.WriteFile(people, []byte(lookToken+" role=look name=lea\n"+endToken+" role=end name=eva\n"), 0o600))
	p := proctest.Start(t, proctest.Command(t, program, "--database-url", dsn, "serve", "monitor", "--listen", "127.0.0.1:0", "--actions", "--auth-token-file", people, "--audit-file", audit))
	return desk{p, p.Match(&p.Stderr, `msg=serving.* page=(\S+)`)[1], audit, people}
}

// signIn opens the page as eva.
func (b *browser) signIn(address string) {
	b.t.Helper()
	b.signInAs(address, endToken, "Signed in as eva, with the role end")
}

func (b *browser) signInAs(address, token, says string) {
	b.t.Helper()
	b.open(address)
	b.until("h1", "Sign in")
	b.accessible("sign-in")
	assert.Equal(b.t, "token", eval[string](b, "document.activeElement.name"))
	b.do(chromedp.KeyEvent(token + kb.Enter))
	b.until("#actions", says)
	b.mu.Lock()
	b.problems = nil // that nobody had signed in
	b.mu.Unlock()
	b.until("#live", "live, ") // the script runs
}

// choose chooses an action by keys alone.
func (b *browser) choose(name string) {
	b.t.Helper()
	b.do(press("a"))
	b.untilTrue("document.activeElement.id === 'act-what'")
	b.do(chromedp.KeyEvent(kb.Home))
	for range 12 { // down to the action, whose order may change
		if eval[string](b, "document.activeElement.value") == name {
			return
		}
		b.do(chromedp.KeyEvent(kb.ArrowDown))
	}
	require.Fail(b.t, "no such action", name)
}

// odd is text that HTML, SQL and a path read differently.
const odd = `<img/src=x>'--`

// Each action is asked for by keys alone, about what does not exist: the page says so, as text, and shows no confirmation.
func TestEachActionCanBeAskedForWithTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	store, err := leasepg.New(leasepg.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	_, err = store.Acquire(t.Context(), lease.AcquireRequest{Name: odd, Holder: "web-3", TTL: time.Hour})
	require.NoError(t, err)
	address, audit := actions(t, dsn)
	b := browse(t)
	b.signIn(address)
	names := eval[[]string](b, "[...document.getElementById('act-what').options].map(o => o.value)")
	inputs := map[string][]string{
		"dump": {"9:404"}, "ask": {"9:404"}, "resign": {"9:404", ""}, "terminate": {"2147483647"},
		"drain": {"tenant=7", odd}, "undrain": {"tenant=7", odd}, "pin": {"tenant=7", odd, odd}, "unpin": {"tenant=7", odd},
		"interrupt": {odd, "a"}, "retry": {odd, "7"}, "force-release": {odd + "404"},
	}
	require.Len(t, inputs, len(names), "a row for each action")
	for _, name := range names {
		require.Contains(t, inputs, name)
		b.choose(name)
		for _, input := range inputs[name] {
			b.do(chromedp.KeyEvent(kb.Tab))
			if input != "" {
				b.do(chromedp.KeyEvent(input))
			}
		}
		b.accessible(name)
		eval[bool](b, "document.getElementById('act-said').textContent = '', true")
		b.do(chromedp.KeyEvent(kb.Tab))
		b.untilTrue("document.activeElement.id === 'act-show'")
		b.do(chromedp.KeyEvent(kb.Enter))
		b.untilTrue("document.getElementById('act-said').textContent !== ''")
		assert.False(t, eval[bool](b, "document.getElementById('confirm').open"), name)
		assert.False(t, eval[bool](b, "document.querySelector('#actions img') !== null"), "%s: text is text", name)
		t.Log(name + ": " + b.text("#act-said"))
	}

	// The control: about what exists, the page shows what it does, and does it.
	b.choose("force-release")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(odd), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.until("#confirm-title", "End the lease of web-3 on "+odd)
	b.untilTrue("document.activeElement.id === 'confirm-why'")
	b.do(chromedp.KeyEvent("its host is gone"), chromedp.KeyEvent(kb.Enter))
	b.until("#act-said", "done: ended the lease of web-3")
	record, err := store.Get(t.Context(), odd)
	require.NoError(t, err)
	assert.Equal(t, lease.Free, record.State)
	raw, err := os.ReadFile(audit)
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"why":"its host is gone"`)
}

func TestASessionIsEndedFromThePageWithTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	cc.RuntimeParams["application_name"] = "<b>web-3</b>"
	conn, err := pgx.ConnectConfig(t.Context(), cc)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock(1, i) FROM generate_series(1, 412) i")
	require.NoError(t, err)
	address, audit := actions(t, dsn)

	b := browse(t)
	b.signIn(address)
	b.choose("terminate")
	b.untilTrue("document.getElementById('act-session') !== null")
	b.accessible("actions")
	b.do(chromedp.KeyEvent(kb.Tab))
	b.untilTrue("document.activeElement.id === 'act-session'")
	b.do(chromedp.KeyEvent(fmt.Sprint(conn.PgConn().PID())), chromedp.KeyEvent(kb.Tab))
	b.untilTrue("document.activeElement.id === 'act-show'")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("#confirm-title", "this session carries 412 locks of <b>web-3</b>")
	b.until("#confirm-effect", "and 373 more")
	b.accessible("confirm")
	b.view("confirm")
	b.do(press("1")) // a key of the page, and text here
	assert.Equal(t, "1", eval[string](b, "document.getElementById('confirm-why').value"))
	b.do(chromedp.KeyEvent(kb.Escape))
	b.untilTrue("!document.getElementById('confirm').open && document.activeElement.id === 'act-show'")
	require.NoError(t, conn.Ping(t.Context()), "nothing is done")

	b.do(chromedp.KeyEvent(kb.Enter))
	b.untilTrue("document.activeElement.id === 'confirm-why'")
	b.do(chromedp.KeyEvent("it hangs"), chromedp.KeyEvent(kb.Tab))
	assert.Equal(t, "confirm-do", eval[string](b, "document.activeElement.id"))
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until("#act-said", "done: backend ")
	b.until("#actions table", "it hangs")
	b.until("#actions table", "done: backend ")
	require.Error(t, conn.Ping(t.Context()))
	b.accessible("done")
	b.do(chromedp.EmulateViewport(320, 640))
	assert.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), int64(320), "%s", lazy(func() string {
		return eval[string](b, "[...document.querySelectorAll('*')].filter(e => e.getBoundingClientRect().right > 320).map(e => e.tagName + '#' + e.id + '.' + e.className).join(' ')")
	}))
	b.clean(strings.TrimSuffix(address, "/"))

	raw, err := os.ReadFile(audit)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	var last struct{ Who, Action, Why, Outcome string }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	assert.Equal(t, "eva terminate it hangs done", strings.Join([]string{last.Who, last.Action, last.Why, last.Outcome}, " "))
}

// last returns who did what with which outcome, in the newest line of the audit.
func (d desk) last(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(d.audit)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	var e struct{ Who, Action, Outcome string }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &e))
	return strings.TrimSpace(strings.Join([]string{e.Who, e.Action, e.Outcome}, " "))
}

// post sends a request that the page's script would not send, and returns the status of the answer.
func (b *browser) post(path, header, media, body string) int {
	b.t.Helper()
	return eval[int](b, fmt.Sprintf("fetch(%q, {method: 'POST', headers: {'Content-Type': %q, 'Pglatch-Action': %q}, body: %q}).then(r => r.status)", path, media, header, body))
}

func TestAnActionWithoutItsRightIsRefusedInTheBrowserToo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock(1, 1)")
	require.NoError(t, err)
	d, b := newDesk(t, dsn), browse(t)
	const media = "application/json"
	end := fmt.Sprintf(`{"action":"terminate","session":%d}`, conn.PgConn().PID())
	forged := `{"confirm":"FORGED","why":"it hangs"}`

	b.signInAs(d.address, lookToken, "Signed in as lea, with the role look")
	assert.Equal(t, http.StatusForbidden, b.post("actions/prepare", "1", media, end), "a request by hand has no more rights")
	assert.Equal(t, "lea terminate refused", d.last(t))
	assert.Equal(t, http.StatusConflict, b.post("actions/do", "1", media, forged))
	assert.Equal(t, "lea do refused", d.last(t))
	b.open(d.address)
	b.until("#actions table", "refused")
	assert.Equal(t, http.StatusNoContent, b.post("actions/sign-out", "1", media, "{}"))

	b.signIn(d.address)
	assert.Equal(t, http.StatusForbidden, b.post("actions/prepare", "", media, end), "without the header of the page's script")
	assert.Equal(t, "eva prepare refused", d.last(t))
	assert.Equal(t, http.StatusForbidden, b.post("actions/do", "forged", media, forged))
	assert.Equal(t, "eva do refused", d.last(t))
	assert.Equal(t, http.StatusConflict, b.post("actions/do", "1", media, forged), "nobody was shown what it does")
	assert.Equal(t, "eva do refused", d.last(t))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<h1>Another page</h1>")) }))
	t.Cleanup(other.Close)
	b.open(other.URL) // its port is another, so that the browser sends it the cookie
	b.until("h1", "Another page")
	assert.True(t, eval[bool](b, fmt.Sprintf("fetch(%q, {method: 'POST', mode: 'no-cors', credentials: 'include', body: %q}).then(() => true)", d.address+"actions/prepare", end)))
	assert.Equal(t, "eva prepare refused", d.last(t), "a page of another origin")
	b.open(d.address)
	b.until("#actions", "Signed in as eva")
	assert.Equal(t, http.StatusOK, b.post("actions/prepare", "1", media, end), "control: the page itself")

	require.NoError(t, os.WriteFile(d.people, []byte(lookToken+" role=look name=lea\n"), 0o600))
	d.Signal(syscall.SIGHUP)
	d.Saying(&d.Stderr, `msg="read again" what=people`)
	assert.Equal(t, http.StatusUnauthorized, b.post("actions/prepare", "1", media, end), "the token is not known any more")
	assert.Equal(t, "prepare refused", d.last(t))
	b.open(d.address)
	b.until("h1", "Sign in")
	require.NoError(t, conn.Ping(t.Context()), "nothing was ended")
}
