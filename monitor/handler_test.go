package monitor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/monitor/echov4"
	"github.com/pglatch/pglatch/namespace"
)

// request is one from this host.
func request(t *testing.T, method, target string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:50000", "localhost:8080"
	return r
}

func get(t *testing.T, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(t, http.MethodGet, target))
	return w
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v), w.Body.String())
	return v
}

func requireProblem(t *testing.T, w *httptest.ResponseRecorder, status int, detail string) {
	t.Helper()
	require.Equal(t, status, w.Code, w.Body.String())
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	p := decode[map[string]any](t, w)
	assert.InDelta(t, status, p["status"], 0)
	assert.Equal(t, http.StatusText(status), p["title"])
	assert.Contains(t, p["detail"], detail)
	assertSecurityHeaders(t, w.Header())
}

func assertSecurityHeaders(t *testing.T, h http.Header) {
	t.Helper()
	assert.Equal(t, "no-store", h.Get("Cache-Control"))
	assert.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
	assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
	assert.Equal(t, "noindex", h.Get("X-Robots-Tag"))
	assert.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
}

func TestScenario_QueryAdvisoryLocks(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder, waiter := clitest.Connect(t, dsn, "hook"), clitest.Connect(t, dsn, "reaper")
	holderPID, waiterPID := pid(holder), pid(waiter)
	lock(t, holder, agents.ID(42))
	lock(t, holder, agents.ID(1<<62))
	wait(t, dsn, waiter, agents.ID(42))
	m := open(t, monitor.Config{DSN: dsn})
	e := echo.New()
	echov4.Register(e, "", m)

	w := get(t, e, "/api/advisory-locks")

	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
	assertSecurityHeaders(t, w.Header())
	answer := decode[struct {
		Total   int
		Partial bool
		Locks   []map[string]any
		Server  map[string]any
	}](t, w)
	assert.Equal(t, 3, answer.Total)
	assert.False(t, answer.Partial)
	assert.Contains(t, answer.Server, "now")
	assert.Equal(t, holder.Config().Database, answer.Server["database"])
	require.Len(t, answer.Locks, 3)
	for _, l := range answer.Locks {
		for _, field := range []string{
			"pid", "application_name", "state", "query_start", "namespace", "entity_id", "mode", "granted", "duration",
			"key", "wait_start", "blocked_by", "blocks", "backend_start", "held_since",
		} {
			assert.Contains(t, l, field)
		}
	}
	big, held, waits := answer.Locks[0], answer.Locks[1], answer.Locks[2]
	single, _ := agents.ID(1 << 62).Tag().Single()
	assert.Equal(t, strconv.FormatInt(single, 10), big["key"].(map[string]any)["bigint"], "text: JSON numbers are exact to 53 bits")
	assert.Nil(t, big["entity_id"])
	assert.InDelta(t, holderPID, held["pid"], 0)
	assert.Equal(t, "hook", held["application_name"])
	assert.Equal(t, "agent", held["namespace"])
	assert.Equal(t, "42", held["entity_id"])
	assert.Equal(t, true, held["granted"])
	assert.Equal(t, []any{float64(waiterPID)}, held["blocks"])
	assert.Equal(t, "first_seen", held["held_since"].(map[string]any)["source"])
	assert.Equal(t, map[string]any{"kind": "pair", "key1": 1.0, "key2": 42.0, "text": "agent/42"}, held["key"])
	assert.Equal(t, false, waits["granted"])
	assert.Equal(t, []any{float64(holderPID)}, waits["blocked_by"])
	assert.Nil(t, waits["held_since"])
	assert.NotContains(t, w.Body.String(), "pg_advisory_lock", "no query text")
}

func TestFiltersNarrowTheList(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, c := clitest.Connect(t, dsn, "worker-a"), clitest.Connect(t, dsn, "worker-b"), clitest.Connect(t, dsn, "Worker-C")
	aPID := pid(a)
	for conn, k := range map[*pgx.Conn]namespace.Key{a: agents.ID(42), b: orders.ID(7)} {
		lock(t, conn, k)
	}
	lock(t, b, namespace.Pair(9, 77))
	lock(t, b, namespace.SingleRaw(5))
	wait(t, dsn, c, agents.ID(42))
	h := open(t, monitor.Config{DSN: dsn}).Handler()
	for query, want := range map[string][]string{
		"":                                     {"@5", "agent/42", "agent/42", "order/7", "9:77"},
		"?namespace=agent":                     {"agent/42", "agent/42"},
		"?namespace=9":                         {"9:77"},
		"?namespace=agen":                      {},
		"?state=waiting":                       {"agent/42"},
		"?state=held":                          {"@5", "agent/42", "order/7", "9:77"},
		"?q=worker-c":                          {"agent/42"},
		"?q=7":                                 {"order/7", "9:77"},
		"?q=AGENT%2F4":                         {"agent/42", "agent/42"},
		"?pid=" + strconv.Itoa(int(aPID)):      {"agent/42"},
		"?pid=0":                               {},
		"?namespace=agent&state=held&q=worker": {"agent/42"},
		"?namespace=agent&state=held&q=none":   {},
	} {
		s := decode[monitor.Snapshot](t, get(t, h, "/api/advisory-locks"+query))
		got := make([]string, 0, len(s.Locks))
		for _, l := range s.Locks {
			got = append(got, l.Key.Text)
		}
		assert.Equal(t, want, got, query)
		assert.Equal(t, len(want), s.Total, query)
		assert.NotNil(t, s.Locks, "an empty list is [] and not null")
	}
}

func TestABadFilterIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, monitor.Config{DSN: "host=127.0.0.1 port=1"}).Handler()
	for query, detail := range map[string]string{
		"?name=agent":          `unknown filter "name": use namespace, q, state, pid, limit or after`,
		"?State=held":          "unknown filter",
		"?state=granted":       "use held or waiting",
		"?limit=0":             "use 1 to 10000",
		"?limit=10001":         "use 1 to 10000",
		"?limit=many":          "use 1 to 10000",
		"?after=1.2.3":         "use the next of an answer",
		"?after=1.2.3.4.5":     "use the next of an answer",
		"?after=1.2.3.-4":      "use the next of an answer",
		"?after=70000.2.3.4":   "use the next of an answer",
		"?state=":              "not empty",
		"?q=":                  "not empty",
		"?pid=x":               "decimal number",
		"?pid=-1":              "decimal number",
		"?pid=4294967296":      "decimal number",
		"?pid=1&pid=2":         "give it once",
		"?namespace=%zz":       "cannot be read",
		"?state=held;q=x":      "cannot be read",
		"?q=<script>&bad=1&q2": "",
	} {
		requireProblem(t, get(t, h, "/api/advisory-locks"+query), http.StatusBadRequest, detail)
	}
}

func TestOnlyThisHostMayLookByDefault(t *testing.T) {
	t.Parallel()
	const allowed = http.StatusServiceUnavailable // there is no database
	h := open(t, monitor.Config{DSN: "host=127.0.0.1 port=1"}).Handler()
	for name, c := range map[string]struct {
		remote, host, header string
		want                 int
	}{
		"IPv4":                       {"127.0.0.1:1", "localhost", "", allowed},
		"all of 127/8":               {"127.1.2.3:1", "127.0.0.1:80", "", allowed},
		"IPv6":                       {"[::1]:1", "[::1]:8080", "", allowed},
		"IPv6 without port":          {"[::1]:1", "[::1]", "", allowed},
		"IPv4 in IPv6":               {"[::ffff:127.0.0.1]:1", "LOCALHOST:80", "", allowed},
		"another host":               {"192.0.2.1:1", "localhost", "", 403},
		"another host, IPv6":         {"[2001:db8::1]:1", "localhost", "", 403},
		"a Unix socket":              {"@", "localhost", "", 403},
		"nothing":                    {"", "localhost", "", 403},
		"a proxy":                    {"127.0.0.1:1", "localhost", "X-Forwarded-For", 403},
		"a proxy, any other header":  {"127.0.0.1:1", "localhost", "X-Forwarded-Proto", 403},
		"a proxy, RFC 7239":          {"127.0.0.1:1", "localhost", "Forwarded", 403},
		"a proxy, nginx":             {"127.0.0.1:1", "localhost", "X-Real-IP", 403},
		"a proxy, Cloudflare":        {"127.0.0.1:1", "localhost", "Cf-Ray", 403},
		"a proxy, AWS":               {"127.0.0.1:1", "localhost", "X-Amzn-Trace-Id", 403},
		"a proxy, RFC 9110":          {"127.0.0.1:1", "localhost", "Via", 403},
		"DNS rebinding":              {"127.0.0.1:1", "evil.example", "", 403},
		"DNS rebinding, with port":   {"127.0.0.1:1", "evil.example:80", "", 403},
		"a name that begins so":      {"127.0.0.1:1", "localhost.evil.example", "", 403},
		"another loopback as a Host": {"127.0.0.1:1", "127.0.0.2", "", 403},
		"no Host":                    {"127.0.0.1:1", "", "", 403},
	} {
		r := request(t, http.MethodGet, "/api/advisory-locks")
		r.RemoteAddr, r.Host = c.remote, c.host
		if c.header != "" {
			r.Header.Set(c.header, "x")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, c.want, w.Code, name)
		if c.want == http.StatusForbidden {
			requireProblem(t, w, http.StatusForbidden, "Config.Authorize")
		}
	}
}

func TestAuthorizeDecidesBeforeAnythingElseIsSaid(t *testing.T) {
	t.Parallel()
	var asked monitor.Action
	h := open(t, monitor.Config{DSN: "host=127.0.0.1 port=1", Authorize: func(r *http.Request, a monitor.Action) error {
		asked = a
		if r.Header.Get("Authorization") == "" {
			return errors.New("log in first")
		}
		return nil
	}}).Handler()
	for _, target := range []string{"/api/advisory-locks", "/api/advisory-locks?bad=1", "/other"} {
		requireProblem(t, get(t, h, target), http.StatusForbidden, "log in first")
		assert.Equal(t, monitor.ActionView, asked)
	}
	r := request(t, http.MethodGet, "/api/advisory-locks")
	r.RemoteAddr = "192.0.2.1:1"
	r.Header.Set("Authorization", "x")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
}

func TestAllowAllLetsEverybodyIn(t *testing.T) {
	t.Parallel()
	r := request(t, http.MethodGet, "/api/advisory-locks")
	r.RemoteAddr, r.Host = "192.0.2.1:1", "locks.example"
	w := httptest.NewRecorder()
	open(t, monitor.Config{DSN: pgtest.DSN(t), Authorize: monitor.AllowAll}).Handler().ServeHTTP(w, r)
	assert.Equal(t, http.StatusOK, w.Code)
}

func TestADatabaseThatIsDownIsA503WithoutItsDetails(t *testing.T) {
	t.Parallel()
	h := open(t, monitor.Config{DSN: "postgres://some-user:s3cret@127.0.0.1:1/some-database"}).Handler()
	w := get(t, h, "/api/advisory-locks")
	requireProblem(t, w, http.StatusServiceUnavailable, "the database does not answer")
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
	for _, secret := range []string{"s3cret", "some-user", "some-database", "127.0.0.1"} {
		assert.NotContains(t, w.Body.String(), secret)
	}
}

func TestTheHandlerMountsUnderAnyPrefix(t *testing.T) {
	t.Parallel()
	m := open(t, monitor.Config{DSN: pgtest.DSN(t)})
	mux := http.NewServeMux()
	mux.Handle("/locks/", m.Handler())
	mux.Handle("/stripped/", http.StripPrefix("/stripped", m.Handler()))
	e := echo.New()
	echov4.Register(e, "/admin/", m)
	for target, h := range map[string]http.Handler{
		"/api/advisory-locks":             m.Handler(),
		"/locks/api/advisory-locks":       mux,
		"/stripped/api/advisory-locks":    mux,
		"/admin/api/advisory-locks":       e,
		"/admin/api/advisory-locks?pid=1": e,
	} {
		assert.Equal(t, http.StatusOK, get(t, h, target).Code, target)

		w := httptest.NewRecorder()
		h.ServeHTTP(w, request(t, http.MethodHead, target))
		assert.Equal(t, http.StatusOK, w.Code, target)

		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodOptions} {
			w = httptest.NewRecorder()
			h.ServeHTTP(w, request(t, method, target))
			requireProblem(t, w, http.StatusMethodNotAllowed, "GET or HEAD")
			assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"), target)
		}
	}
	for _, target := range []string{"/locks/", "/locks/api", "/stripped/api/advisory-locks/", "/stripped/api/advisory-locks/1"} {
		requireProblem(t, get(t, mux, target), http.StatusNotFound, "/api/advisory-locks")
	}
}

func TestHeadHasNoBodyOnTheWire(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(open(t, monitor.Config{DSN: pgtest.DSN(t)}).Handler())
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL+"/x/api/advisory-locks", nil)
	require.NoError(t, err)
	answer, err := server.Client().Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Positive(t, answer.ContentLength)
}

type listed struct {
	Locks []struct {
		PID     uint32
		Granted bool
		Key     struct{ Text string }
	}
	Total int
	Next  string
}

func TestALongListComesInPagesThatHaveEachLockOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder, waiter, other := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "waiter"), clitest.Connect(t, dsn, "other")
	run(t, holder, "SELECT pg_advisory_lock(9, g) FROM generate_series(-600, 600) AS g")
	run(t, holder, "SELECT pg_advisory_lock(g) FROM generate_series(-50, 50) AS g")
	for _, conn := range []string{"a", "b", "c"} {
		run(t, clitest.Connect(t, dsn, conn), "SELECT pg_advisory_lock_shared(8, 1)")
	}
	clitest.WaitFor(t, dsn, waiter, "SELECT pg_advisory_lock(8, 1)")
	clitest.WaitFor(t, dsn, other, "SELECT pg_advisory_lock(9, 600)")
	h := open(t, monitor.Config{DSN: dsn}).Handler()
	const all = 1201 + 101 + 4 + 1
	for _, c := range []struct {
		filter             string
		limit, total, most int
	}{{"", 0, all, 1000}, {"", 100, all, 100}, {"", 10_000, all, 10_000}, {"namespace=8", 1, 4, 1}, {"state=waiting", 1, 2, 1}, {"q=9:", 500, 1202, 500}} {
		query := c.filter
		if c.limit > 0 {
			query += fmt.Sprintf("&limit=%d", c.limit)
		}
		seen, pages := map[string]int{}, 0
		for next := ""; ; pages++ {
			target := "/api/advisory-locks?" + query
			if next != "" {
				target += "&after=" + url.QueryEscape(next)
			}
			l := decode[listed](t, get(t, h, target))
			require.Equal(t, c.total, l.Total, target)
			require.LessOrEqual(t, len(l.Locks), c.most, target)
			require.NotEmpty(t, l.Locks, target)
			for _, lock := range l.Locks {
				seen[fmt.Sprint(lock.Key.Text, lock.PID, lock.Granted)]++
			}
			if next = l.Next; next == "" {
				break
			}
			require.Len(t, l.Locks, c.most, "only the last page is shorter")
		}
		assert.Len(t, seen, c.total, query)
		for lock, n := range seen {
			require.Equal(t, 1, n, lock)
		}
		assert.Equal(t, (c.total-1)/c.most, pages, query)
	}
}

func TestAPositionThatIsGoneIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder := clitest.Connect(t, dsn, "holder")
	run(t, holder, "SELECT pg_advisory_lock(9, g) FROM generate_series(1, 5) AS g")
	h := open(t, monitor.Config{DSN: dsn}).Handler()
	first := decode[listed](t, get(t, h, "/api/advisory-locks?limit=2"))
	run(t, holder, "SELECT pg_advisory_unlock(9, 2)")
	rest := decode[listed](t, get(t, h, "/api/advisory-locks?after="+first.Next))
	require.Len(t, rest.Locks, 3)
	assert.Equal(t, "9:3", rest.Locks[0].Key.Text)
	assert.Equal(t, 4, rest.Total)
	assert.Empty(t, rest.Next)
}
