package servecmd_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// browser is a client that keeps cookies, as a browser does.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// signIn signs a browser in.
func (c *console) signIn(client *http.Client, token string, alter ...func(*http.Request)) (status int, cookies []*http.Cookie) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"actions/sign-in", strings.NewReader(url.Values{"token": {token}}.Encode()))
	require.NoError(c.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, f := range alter {
		f(r)
	}
	response, err := client.Do(r)
	require.NoError(c.t, err)
	require.NoError(c.t, response.Body.Close())
	return response.StatusCode, response.Cookies()
}

// get gets a page as a browser does.
func (c *console) get(client *http.Client, path string) (status int, body string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+path, http.NoBody)
	require.NoError(c.t, err)
	r.Header.Set("Accept", "text/html")
	response, err := client.Do(r)
	require.NoError(c.t, err)
	data, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, response.Body.Close())
	return response.StatusCode, string(data)
}

// A page of another origin cannot act with the cookie of somebody who has signed in.
func TestAPageOfAnotherOriginCannotAct(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	client := browser(t)
	status, cookies := c.signIn(client, endToken)
	require.Equal(t, http.StatusSeeOther, status)
	require.Len(t, cookies, 1)
	cookie := cookies[0]
	assert.True(t, cookie.HttpOnly, "no script reads it")
	assert.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	session := func(r *http.Request) { r.AddCookie(cookie) }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	conn, pid := c.session("web-3", 1)
	body := fmt.Sprintf(`{"action":"terminate","session":%d}`, pid)
	for what, alter := range map[string]func(*http.Request){
		"cross-site":      header("Sec-Fetch-Site", "cross-site"),
		"same-site":       header("Sec-Fetch-Site", "same-site"),
		"other origin":    func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") },
		"opaque origin":   func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") },
		"a form's header": func(r *http.Request) { r.Header.Del("Pglatch-Action") },
		"a form's type":   header("Content-Type", "text/plain"),
	} {
		for _, path := range []string{"prepare", "do"} {
			a := c.send("", path, body, session, alter)
			assert.Contains(t, []int{http.StatusForbidden, http.StatusBadRequest}, a.status, "%s: %s: %+v", path, what, a)
			assert.Equal(t, []string{"eva", "refused"}, []string{c.last().Who, c.last().Outcome}, what)
		}
	}
	response, err := client.Get(c.url + "actions/do")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusMethodNotAllowed, response.StatusCode)
	out := c.send("", "sign-out", "{}", session, header("Sec-Fetch-Site", "cross-site"))
	assert.Equal(t, http.StatusForbidden, out.status)
	status, _ = c.signIn(browser(t), endToken, header("Sec-Fetch-Site", "cross-site"))
	assert.Equal(t, http.StatusForbidden, status, "nor sign somebody in")

	// The control: the page itself.
	a := c.send("", "prepare", body, session)
	require.Equal(t, http.StatusOK, a.status, "%+v", a)
	require.True(t, lives(t, conn))
	assert.Equal(t, http.StatusNoContent, c.send("", "sign-out", "{}", session).status)
	assert.Equal(t, http.StatusUnauthorized, c.send("", "prepare", body, session).status, "the session has ended")
}

func TestAConfirmationIsForOnePersonOnceAndForWhatItShowed(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	c.change(people + "other-0123456789abcdef role=end name=otto\n")
	conn, pid := c.session("web-3", 1, 2)
	request := fmt.Sprintf(`{"action":"terminate","session":%d}`, pid)
	prepare := func() answer {
		a := c.send(endToken, "prepare", request)
		require.Equal(t, http.StatusOK, a.status, "%+v", a)
		return a
	}
	for what, a := range map[string]answer{
		"somebody else's": c.confirm("other-0123456789abcdef", prepare().Confirm, "it hangs"),
		"a guess":         c.confirm(endToken, "GUESS", "it hangs"),
	} {
		assert.Equal(t, http.StatusConflict, a.status, what)
		assert.Equal(t, "refused", c.last().Outcome, what)
	}
	assert.Equal(t, http.StatusBadRequest, c.confirm(endToken, prepare().Confirm, "").status, "without a reason")
	e := c.last()
	assert.Equal(t, []string{"refused", "terminate", fmt.Sprintf("session %d", pid)}, []string{e.Outcome, e.Action, e.Target})
	assert.Equal(t, http.StatusBadRequest, c.confirm(endToken, "GUESS", "").status)
	assert.Equal(t, "do", c.last().Action, "control: a guess is about nothing")

	shown := prepare()
	clitest.Execute(t, conn, "SELECT pg_advisory_lock(1, 3)")
	a := c.confirm(endToken, shown.Confirm, "it hangs")
	assert.Equal(t, http.StatusConflict, a.status)
	assert.True(t, a.Changed)
	assert.Contains(t, a.Title, "3 locks", "what it would end now is shown")
	assert.Equal(t, "refused", c.last().Outcome)
	require.True(t, lives(t, conn), "nothing is done")
	assert.Equal(t, http.StatusConflict, c.confirm(endToken, shown.Confirm, "it hangs").status, "it is used")

	clitest.Execute(t, conn, "SELECT pg_advisory_unlock(1, 2)") // less is no surprise
	a = c.confirm(endToken, a.Confirm, "it hangs")
	assert.Equal(t, "done", a.Outcome, "%+v", a)
	assert.False(t, lives(t, conn))
	before := len(c.entries())
	again := c.send(endToken, "do", fmt.Sprintf(`{"confirm":%q,"why":"again"}`, a.Confirm))
	assert.Equal(t, http.StatusConflict, again.status)
	assert.Len(t, c.entries(), before+1)
}

func TestABodyThatIsNotExactlyWhatThePageSendsIsRefused(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	for _, body := range []string{
		`{"action":"ask","action":"terminate","session":1}`, `{"Action":"ask","key":"order/1"}`, `{"action":"ask","key":"order/1","force":true}`,
		`{"action":"ask","key":"order/1","session":1}`, `{"action":"ask"}`, `{"action":"nothing"}`, `{"action":"ask","key":"\ud800"}`, `[]`, `null`, ``, "{\"action\":\"ask\",\"key\":\"\xff\"}",
		`{"action":"ask","key":"` + strings.Repeat("x", 20<<10) + `"}`, `{"action":"terminate","session":-1}`, `{"action":"terminate","session":4294967296}`,
	} {
		a := c.send(endToken, "prepare", body)
		assert.Equal(t, http.StatusBadRequest, a.status, "%.80s: %+v", body, a)
		assert.Equal(t, "refused", c.last().Outcome, "%.80s", body)
	}
	// The control.
	c.session("web-3", 1)
	assert.Equal(t, http.StatusOK, c.send(endToken, "prepare", `{"action":"ask","key":"order/1"}`).status)
}

func TestHostileNamesStayText(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	_, pid := c.session("<img src=x onerror=alert(1)>\u202egnp.exe", 1)
	a := c.send(endToken, "prepare", fmt.Sprintf(`{"action":"terminate","session":%d}`, pid))
	require.Equal(t, http.StatusOK, a.status, "%+v", a)
	assert.NotContains(t, a.Title+strings.Join(a.Effect, ""), "\u202e")
	a = c.confirm(endToken, a.Confirm, "it hangs\n{\"who\":\"ann\"}")
	assert.Equal(t, http.StatusBadRequest, a.status, "a reason is one line")
	bad := c.send(endToken, "prepare", `{"action":"ask","key":"order/\u001b[2J\u202e"}`)
	assert.NotEqual(t, http.StatusOK, bad.status)
	assert.NotContains(t, bad.Detail, "\u001b")
	missing := c.send(lookToken, "prepare", `{"action":"ask","key":"\u001b[2J\u202e\n{}"}`)
	assert.Equal(t, http.StatusForbidden, missing.status)
	raw, err := os.ReadFile(c.audit)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "\u202e")
	assert.NotContains(t, string(raw), "u001b")
	c.entries() // each line is one document
}

func TestOneAddressCannotFillTheAudit(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	var limited answer
	for range 200 {
		if limited = c.once("guessed-0123456789abcdef", "do", `{}`); limited.status == http.StatusTooManyRequests {
			break
		}
	}
	require.Equal(t, http.StatusTooManyRequests, limited.status)
	assert.Equal(t, "1", limited.header.Get("Retry-After"))
	assert.Equal(t, http.StatusUnauthorized, c.send("", "do", `{}`).status)
	assert.Positive(t, c.last().Skipped, "what has no line is counted")
}

func TestPeopleAreReadAgainAndABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	client := browser(t)
	status, _ := c.signIn(browser(t), "guessed-0123456789abcdef")
	require.Equal(t, http.StatusUnauthorized, status)
	status, body := c.get(client, "")
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.Contains(t, body, "Your token")
	_, body = c.get(client, "incident?id=v-1&key=%3Cb%3E")
	assert.Contains(t, body, `name="next" value="incident?id=v-1&amp;key=%3Cb%3E"`, "a link is followed after signing in")
	c.signIn(client, endToken)
	status, body = c.get(client, "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "actions/actions.js")

	for bad, says := range map[string]string{
		"broken\n":                                             "the token has 6 bytes",
		"end-0123456789abcdef name=eva\n":                      "there is no role",
		"end-0123456789abcdef role=king name=eva\n":            "use one of look, ask, end",
		"end-0123456789abcdef role=end\n":                      "there is no name",
		"sha256:abc role=end name=eva\n":                       "64 hexadecimal digits",
		people + "x-0123456789abcdefgh role=look name=ann\n":   "the name is that of another line",
		people + "ask-0123456789abcdef role=look name=other\n": "the token is that of another line",
		people + "y-0123456789abcdefgh role=end right=admin\n": "there is more than a token",
	} {
		c.write(bad)
		c.program.Signal(syscall.SIGHUP)
		c.program.Saying(&c.program.Stderr, says)
		status, _ = c.get(client, "")
		assert.Equal(t, http.StatusOK, status, "what was is kept: %s", says)
	}
	assert.NotContains(t, c.program.Stderr.String(), "end-0123456789abcdef", "no token is logged")

	live, err := client.Get(c.url + "live?view=")
	require.NoError(t, err)
	defer func() { _ = live.Body.Close() }()
	require.Equal(t, http.StatusOK, live.StatusCode)
	require.NoError(t, os.Rename(c.audit, c.audit+".1"))
	c.write("ask-0123456789abcdef role=ask name=ann\n")
	c.program.Signal(syscall.SIGHUP)
	c.program.Saying(&c.program.Stderr, `msg="read again" what=people`)
	_, err = io.Copy(io.Discard, live.Body)
	require.NoError(t, err, "the view of somebody who may not look any more has ended")
	status, _ = c.get(client, "")
	assert.Equal(t, http.StatusUnauthorized, status, "the sign-in ends with the token")
	await.Until(t, await.Soon, func() bool { // the audit's file is opened again after the people are read
		assert.Equal(t, http.StatusUnauthorized, c.send(endToken, "do", `{}`).status)
		raw, err := os.ReadFile(c.audit)
		return err == nil && strings.Contains(string(raw), `"outcome":"refused"`)
	}, "the new file has no line")
}

// The control is the same confirmation, when the audit can be written again.
func TestNothingIsDoneThatIsNotInTheAudit(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		notrun.Skip(t, "only Linux has a file that is always full")
	}
	c := newConsole(t)
	conn, pid := c.session("web-3", 1)
	swap := func(change func() error, said string) {
		require.NoError(t, change())
		c.program.Signal(syscall.SIGHUP)
		c.program.Saying(&c.program.Stderr, said)
	}
	swap(func() error {
		require.NoError(t, os.Rename(c.audit, c.audit+".1"))
		return os.Symlink("/dev/full", c.audit)
	}, `msg="read again" what=audit`)
	request := fmt.Sprintf(`{"action":"terminate","session":%d}`, pid)
	a := c.confirm(endToken, c.send(endToken, "prepare", request).Confirm, "it hangs")
	assert.Equal(t, http.StatusInternalServerError, a.status)
	assert.Contains(t, a.Detail, "nothing was done, because the audit cannot be written")
	require.True(t, lives(t, conn))
	c.program.Saying(&c.program.Stderr, "the audit cannot be written")
	swap(func() error {
		require.NoError(t, os.Remove(c.audit))
		return os.Mkdir(c.audit, 0o700)
	}, "what=audit error=")
	swap(func() error { return os.Remove(c.audit) }, `what=people`)
	await.Until(t, await.Soon, func() bool {
		a = c.confirm(endToken, c.send(endToken, "prepare", request).Confirm, "it hangs")
		return a.Outcome == "done"
	}, func() string { return fmt.Sprintf("%+v", a) })
	assert.False(t, lives(t, conn))
}

func TestPeopleAreKnownByTheirCertificates(t *testing.T) {
	t.Parallel()
	dir, soon := t.TempDir(), time.Now().Add(time.Hour)
	certificate, key := filepath.Join(dir, "c.pem"), filepath.Join(dir, "k.pem")
	clitest.WriteCertificate(t, certificate, key)
	ours := newAuthority(t)
	c := &console{t: t, dsn: pgtest.DSN(t), people: filepath.Join(dir, "people"), audit: filepath.Join(dir, "audit")}
	c.write("cert-cn:ann role=ask\ncert-cn:eva role=end\n")
	c.program = clitest.Start(t, clitest.At(c.dsn), "serve", "monitor", "--listen", "127.0.0.1:0", "--actions", "--auth-token-file", c.people, "--audit-file", c.audit,
		"--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", ours.file)
	c.program.Saying(&c.program.Stderr, "msg=serving")
	c.url = regexp.MustCompile(`page=(https://\S+)`).FindStringSubmatch(c.program.Stderr.String())[1]
	_, pid := c.session("web-3", 1)
	for who, want := range map[string]int{"ann": http.StatusForbidden, "eva": http.StatusOK, "stranger": http.StatusUnauthorized} {
		files := ours.client(t, who, who+".example", soon)
		pair, err := tls.LoadX509KeyPair(files[1], files[3])
		require.NoError(t, err)
		transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}} //nolint:gosec // the server is not what is tested
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"actions/prepare", strings.NewReader(fmt.Sprintf(`{"action":"terminate","session":%d}`, pid)))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Pglatch-Action", "1")
		response, err := transport.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		transport.CloseIdleConnections()
		assert.Equal(t, want, response.StatusCode, who)
		switch who {
		case "ann":
			assert.Equal(t, "CN=ann", c.last().Who, "the audit has the certificate's subject")
		case "stranger":
			assert.Contains(t, c.last().Detail, "the certificate CN=stranger has no role")
		}
	}
}

func TestTheOutcomeOfARequestThatNobodyAnswersIsUnknown(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	conn, _ := c.session("web-3", 1) // no process answers for it
	a := c.confirm(askToken, c.send(askToken, "prepare", `{"action":"ask","key":"order/1"}`).Confirm, "a deploy")
	require.Equal(t, http.StatusOK, a.status, "%+v", a)
	assert.Equal(t, "unknown", a.Outcome)
	assert.Contains(t, a.Text, "the holder does not answer")
	assert.Equal(t, entry{Who: "ann", Role: "ask", Action: "ask", Target: "key order/1", Why: "a deploy", Outcome: "unknown"}, c.essential())
	assert.True(t, lives(t, conn))
}

// What one person was shown is gone when another was faster. The audit says what became of both.
func TestTwoPersonsEndOneSessionAtOnce(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	const otto = "other-0123456789abcdef"
	c.change(people + otto + " role=end name=otto\n")
	conn, pid := c.session("web-3", 1)
	next, _ := c.session("web-4", 2)
	request := fmt.Sprintf(`{"action":"terminate","session":%d}`, pid)
	tokens := map[string]string{"eva": endToken, "otto": otto}
	confirms := map[string]string{}
	for who, token := range tokens {
		confirms[who] = c.send(token, "prepare", request).Confirm
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	answers := map[string]answer{}
	for who, token := range tokens {
		work.Go(func() {
			a := c.confirm(token, confirms[who], "it hangs")
			mu.Lock()
			defer mu.Unlock()
			answers[who] = a
		})
	}
	work.Wait()
	assert.False(t, lives(t, conn))
	assert.True(t, lives(t, next), "control: another session goes on")
	ends := map[string]string{}
	for _, e := range c.entries() {
		if e.Action == "terminate" && e.Outcome != "begun" {
			ends[e.Who] += e.Outcome
		}
	}
	done := 0
	for who, a := range answers {
		switch a.status {
		case http.StatusOK:
			assert.Equal(t, a.Outcome, ends[who], "%s: %+v", who, a)
			if a.Outcome == "done" {
				done++
			}
		default:
			assert.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %+v", who, a)
			assert.Equal(t, "failed", ends[who], "%s: %+v", who, a)
		}
	}
	assert.Positive(t, done, "%+v", answers)
}

// PostgreSQL gives the number of a session that has ended to a later one.
func TestASessionThatHasTheNumberOfAnotherIsNotEnded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	app := program.New()
	app.UseDatabase(dsn, "the test")
	l, err := lookup.Open(app, nil, 0)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	conn := clitest.Connect(t, dsn, "web-3")
	clitest.Execute(t, conn, "SELECT pg_advisory_lock(1, 1)")
	v, err := l.Victim(t.Context(), conn.PgConn().PID())
	require.NoError(t, err)
	began := v.Start
	v.Start = began.Add(-time.Microsecond) // of the one that was shown
	err = l.Terminate(t.Context(), v)
	assert.Equal(t, program.ExitFree, program.Code(err), "%v", err)
	require.ErrorContains(t, err, "has ended meanwhile")
	require.True(t, lives(t, conn))
	v.Start = began
	require.NoError(t, l.Terminate(t.Context(), v), "control: the one that was shown")
	assert.False(t, lives(t, conn))
}
