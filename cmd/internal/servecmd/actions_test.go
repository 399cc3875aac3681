package servecmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	leaderpg "github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// The tokens of people; that of eva is known by its digest alone.
const (
	lookToken = "look-0123456789abcdef"
	askToken  = "ask-0123456789abcdef"
	endToken  = "end-0123456789abcdef"
	lockToken = "lock-0123456789abcdef" // of a lock server
	people    = "look-0123456789abcdef role=look name=lea\nask-0123456789abcdef role=ask name=ann # on call\n" +
		"sha256:73a947ce82f7a9e3eb3c52cba7b6d6bc83a2f063032033c90980715504205eee role=end name=eva\n"
)

// A console is a monitor with actions.
type console struct {
	t             *testing.T
	dsn, url      string
	people, audit string
	program       *clitest.Program
}

var orders = namespace.Must(1, "order")

func newConsole(t *testing.T, flags ...string) *console {
	t.Helper()
	dir := t.TempDir()
	c := &console{t: t, dsn: pgtest.DSN(t), people: filepath.Join(dir, "people"), audit: filepath.Join(dir, "audit")}
	c.write(people)
	c.program = clitest.Start(t, clitest.At(c.dsn, "PGLATCH_NAMESPACES=order=1", "PGLATCH_LOCK_TOKEN="+lockToken),
		append([]string{"serve", "monitor", "--listen", "127.0.0.1:0", "--actions", "--auth-token-file", c.people, "--audit-file", c.audit}, flags...)...)
	c.program.Saying(&c.program.Stderr, "msg=serving")
	c.url = regexp.MustCompile(`page=(\S+)`).FindStringSubmatch(c.program.Stderr.String())[1]
	return c
}

func (c *console) write(content string) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(c.people, []byte(content), 0o600))
}

// change replaces the people, and returns when the program has read them.
func (c *console) change(people string) {
	c.t.Helper()
	c.write(people)
	c.program.Signal(syscall.SIGHUP)
	c.program.Saying(&c.program.Stderr, `msg="read again" what=audit`)
}

// An answer is what the page answers to a script.
type answer struct {
	status  int
	header  http.Header
	Detail  string   `json:"detail"`
	Confirm string   `json:"confirm"`
	Title   string   `json:"title"`
	Effect  []string `json:"effect"`
	Changed bool     `json:"changed"`
	Outcome string   `json:"outcome"`
	Text    string   `json:"text"`
}

// send sends a request as the page's script does, with the token of a person, until it is not one too many. alter
// changes it.
func (c *console) send(token, path, body string, alter ...func(*http.Request)) (a answer) {
	c.t.Helper()
	await.Until(c.t, await.Soon, func() bool {
		a = c.once(token, path, body, alter...)
		return a.status != http.StatusTooManyRequests
	}, "too many requests")
	return a
}

func (c *console) once(token, path, body string, alter ...func(*http.Request)) (a answer) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"actions/"+path, strings.NewReader(body))
	require.NoError(c.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Pglatch-Action", "1")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for _, f := range alter {
		f(r)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	require.NoError(c.t, err)
	data, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, response.Body.Close())
	if strings.Contains(response.Header.Get("Content-Type"), "json") {
		require.NoError(c.t, json.Unmarshal(data, &a), "%s", data)
	}
	a.status, a.header = response.StatusCode, response.Header
	return a
}

func (c *console) confirm(token, confirm, why string) answer {
	c.t.Helper()
	return c.send(token, "do", fmt.Sprintf(`{"confirm":%q,"why":%q}`, confirm, why))
}

// until prepares and confirms an action until it has this outcome: a busy process can answer too late.
func (c *console) until(token, request, outcome string) (a answer) {
	c.t.Helper()
	await.Until(c.t, await.Soon, func() bool {
		if a = c.send(token, "prepare", request); a.status == http.StatusOK {
			a = c.confirm(token, a.Confirm, "the host goes down")
		}
		return a.Outcome == outcome
	}, func() string { return fmt.Sprintf("%+v", a) })
	return a
}

// An entry is one line of the audit.
type entry struct {
	Who, Role, From, Action, Target, Why, Shown, Outcome, Detail, ID string
	Time                                                             string
	Skipped                                                          int
}

func (c *console) entries() (all []entry) {
	c.t.Helper()
	data, err := os.ReadFile(c.audit)
	require.NoError(c.t, err)
	for line := range bytes.Lines(data) {
		var e entry
		require.NoError(c.t, json.Unmarshal(line, &e), "%s", line)
		all = append(all, e)
	}
	return all
}

// last is the newest line of the audit.
func (c *console) last() entry {
	c.t.Helper()
	all := c.entries()
	require.NotEmpty(c.t, all)
	return all[len(all)-1]
}

// session holds locks of the namespace order in a session without a process that answers.
func (c *console) session(name string, ids ...int) (*pgx.Conn, uint32) {
	c.t.Helper()
	conn := clitest.Connect(c.t, c.dsn, name)
	for _, id := range ids {
		clitest.Execute(c.t, conn, fmt.Sprintf("SELECT pg_advisory_lock(1, %d)", id))
	}
	return conn, conn.PgConn().PID()
}

func (c *console) locker(answer introspect.Config) *advisory.Locker {
	c.t.Helper()
	l, err := advisory.Open(c.t.Context(), advisory.Config{DSN: c.dsn, Answer: answer})
	require.NoError(c.t, err)
	c.t.Cleanup(l.Close)
	return l
}

func lives(t *testing.T, conn *pgx.Conn) bool {
	t.Helper()
	return conn.Ping(context.WithoutCancel(t.Context())) == nil
}

func TestPeopleAskProcessesAndEndSessionsFromThePage(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	lock, err := c.locker(introspect.Config{Service: "billing", AllowAsk: true}).Acquire(t.Context(), orders.ID(7))
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Release() })
	await.Until(t, await.Soon, func() bool {
		keys := c.state(askToken).Keys
		return len(keys) == 1 && strings.HasPrefix(keys[0].Sessions[0].Who, "billing@")
	}, "the process does not answer yet")
	a := c.until(askToken, `{"action":"ask","key":"order/7"}`, "done")
	assert.Contains(t, a.Text, "accepts it")
	await.Receive(t, await.Patience, lock.Asked(), "the process was not asked")
	assert.Equal(t, entry{Who: "ann", Role: "ask", Action: "ask", Target: "key order/7", Why: "the host goes down", Outcome: "done"}, c.essential())
	entries := c.entries()
	begun := entries[len(entries)-2]
	assert.Equal(t, "begun", begun.Outcome, "it is in the audit before it is done")
	assert.Equal(t, entries[len(entries)-1].ID, begun.ID)

	a = c.until(askToken, `{"action":"dump","key":"order/7"}`, "failed")
	assert.Contains(t, a.Text, "refuses it", "the process decides")

	conn, pid := c.session("web-3", 1, 2, 3)
	a = c.send(endToken, "prepare", fmt.Sprintf(`{"action":"terminate","session":%d}`, pid))
	require.Equal(t, http.StatusOK, a.status, "%+v", a)
	assert.Equal(t, fmt.Sprintf("End backend %d: this session carries 3 locks of web-3", pid), a.Title)
	assert.Contains(t, strings.Join(a.Effect, "\n"), "holds order/2")
	require.True(t, lives(t, conn), "nothing is done before it is confirmed")
	a = c.confirm(endToken, a.Confirm, "it hangs")
	assert.Equal(t, "done", a.Outcome, a.Text)
	assert.False(t, lives(t, conn))
	assert.Equal(t, entry{Who: "eva", Role: "end", Action: "terminate", Target: fmt.Sprintf("session %d", pid), Why: "it hangs", Outcome: "done"}, c.essential())
	assert.Contains(t, c.last().Shown, "3 locks of web-3")

	a = c.send(endToken, "prepare", fmt.Sprintf(`{"action":"terminate","session":%d}`, pid))
	assert.Equal(t, http.StatusUnprocessableEntity, a.status)
	assert.Contains(t, a.Detail, "there is no session")
}

// essential is the newest line of the audit without what differs each time.
func (c *console) essential() entry {
	e := c.last()
	assert.NotEmpty(c.t, e.ID)
	assert.NotEmpty(c.t, e.Time)
	assert.Contains(c.t, e.From, "127.0.0.1:")
	e.ID, e.Time, e.From, e.Shown, e.Detail = "", "", "", "", ""
	return e
}

func TestALeaderResignsToAnotherThatLives(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	electors := map[string]*leader.Elector{}
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		b, err := leaderpg.New(leaderpg.Config{DSN: c.dsn, Key: namespace.Pair(9, 100), CreateTable: true, Answer: introspect.Config{AllowResign: true}})
		require.NoError(t, err)
		e, err := leader.New(leader.Config{Name: "nightly", Identity: name, Backend: b})
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		t.Cleanup(func() { _ = e.Shutdown(context.WithoutCancel(t.Context())) })
		electors[name] = e
		if name == "web-1" {
			await.Until(t, await.Soon, e.IsLeader, "web-1 does not lead")
		}
	}
	await.Until(t, await.Soon, func() bool {
		keys := c.state(askToken).Keys
		return len(keys) == 1 && slices.Equal(keys[0].Candidates, []string{"web-2", "web-3"})
	}, "not all candidates are offered")
	a := c.send(askToken, "prepare", `{"action":"resign","key":"9:100","to":"web-3"}`)
	require.Equal(t, http.StatusOK, a.status, "%+v", a)
	assert.Contains(t, a.Title, "to let web-3 lead")
	for _, to := range []string{"web-1", "web-9"} {
		bad := c.send(askToken, "prepare", fmt.Sprintf(`{"action":"resign","key":"9:100","to":%q}`, to))
		assert.Equal(t, http.StatusUnprocessableEntity, bad.status)
		assert.Contains(t, bad.Detail, "there are web-2, web-3", "those that live, and do not lead")
	}
	await.Until(t, await.Soon, func() bool {
		if a = c.send(askToken, "prepare", `{"action":"resign","key":"9:100","to":"web-3"}`); a.status == http.StatusOK { // until it leads
			a = c.confirm(askToken, a.Confirm, "a deploy")
		}
		return electors["web-3"].IsLeader()
	}, func() string { return fmt.Sprintf("web-3 does not lead: %+v", a) })
}

// actionRequests are requests for all actions, about what does not exist.
func actionRequests() map[string]string {
	return map[string]string{
		"dump":          `{"action":"dump","key":"order/404"}`,
		"ask":           `{"action":"ask","key":"order/404"}`,
		"resign":        `{"action":"resign","key":"order/404"}`,
		"terminate":     `{"action":"terminate","session":2147483647}`,
		"drain":         `{"action":"drain","group":"order=1","node":"web-1"}`,
		"undrain":       `{"action":"undrain","group":"order=1","node":"web-1"}`,
		"pin":           `{"action":"pin","group":"order=1","shard":"a","node":"web-1"}`,
		"unpin":         `{"action":"unpin","group":"order=1","shard":"a"}`,
		"force-release": `{"action":"force-release","lease":"job"}`,
		"interrupt":     `{"action":"interrupt","mailbox":"chat","entity":"a"}`,
		"retry":         `{"action":"retry","mailbox":"chat","number":7}`,
	}
}

// An offer is what the page offers to a person.
type offer struct {
	Person  struct{ Name, Role string }
	Actions []struct {
		Name, Role string
		Allowed    bool
	}
	Keys []struct {
		Key        string
		Candidates []string
		Sessions   []struct{ Who string }
	}
	Audit []entry
}

func (c *console) state(token string) (s offer) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+"actions/state", http.NoBody)
	require.NoError(c.t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	require.NoError(c.t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(c.t, http.StatusOK, response.StatusCode)
	require.NoError(c.t, json.NewDecoder(response.Body).Decode(&s))
	return s
}

func TestEachActionWithoutItsRightIsRefusedAndInTheAudit(t *testing.T) {
	t.Parallel()
	_, lockServer := clitest.Serve(t, nil, "--store", "sqlite:"+filepath.Join(t.TempDir(), "l.db"))
	c := newConsole(t, "--lock-server", "http://"+lockServer)
	requests := actionRequests()
	all := c.state(endToken).Actions
	require.Len(t, requests, len(all), "a request for each action")
	for _, action := range all {
		request := requests[action.Name]
		require.NotEmpty(t, request, action.Name)
		for token, who := range map[string]string{"": "", "guessed-0123456789abcdef": "", lookToken: "lea", askToken: "ann"} {
			if who == "ann" && action.Role == "ask" {
				continue
			}
			a := c.send(token, "prepare", request)
			want := http.StatusForbidden
			if who == "" {
				want = http.StatusUnauthorized
			}
			assert.Equal(t, want, a.status, "%s of %q: %+v", action.Name, who, a)
			e := c.last()
			assert.Equal(t, []string{who, "refused"}, []string{e.Who, e.Outcome}, "%s: %+v", action.Name, e)
		}
		// The control: with the right, it fails for what it is about.
		a := c.send(endToken, "prepare", request)
		assert.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %+v", action.Name, a)
	}
	shown := c.state(lookToken)
	assert.Equal(t, "lea", shown.Person.Name)
	assert.NotEmpty(t, shown.Audit, "the refusals are on the page")
	for _, action := range shown.Actions {
		assert.False(t, action.Allowed, action.Name)
	}
}
