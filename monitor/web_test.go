package monitor_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/monitor"
)

func TestThePageShowsALockThatIsHeld(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	lock(t, clitest.Connect(t, dsn, "holder"), agents.ID(42))
	m := open(t, monitor.Config{DSN: dsn})
	w := get(t, m.Page(), "/locks/")
	require.Equal(t, http.StatusOK, w.Code)
	assertSecurityHeaders(t, w.Header())
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self'")
	for _, want := range []string{"agent/42", "holder", "≥", "Nothing is wrong"} {
		assert.Contains(t, w.Body.String(), want)
	}
	for _, asset := range []string{"page.css", "page.js"} {
		assert.Equal(t, http.StatusOK, get(t, m.Page(), "/locks/"+asset).Code)
	}
}

func TestThePageIsNotForOtherHosts(t *testing.T) {
	t.Parallel()
	m := open(t, monitor.Config{DSN: "postgres://localhost:1/nowhere"})
	for _, target := range []string{"/", "/page.js", "/live", "/metrics", "/verdicts", "/at"} {
		r := request(t, http.MethodGet, target)
		r.RemoteAddr = "192.0.2.1:50000"
		w := httptest.NewRecorder()
		m.Page().ServeHTTP(w, r)
		requireProblem(t, w, http.StatusForbidden, "only this host may look")
	}
}

func TestThePageOfADatabaseThatDoesNotAnswerSaysSo(t *testing.T) {
	t.Parallel()
	m := open(t, monitor.Config{DSN: "postgres://localhost:1/nowhere"})
	w := get(t, m.Page(), "/")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Contains(t, w.Body.String(), "The database does not answer")
	assert.NotContains(t, w.Body.String(), "nowhere")
}

func TestAConfigThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for _, config := range []monitor.Config{{Record: -1}, {LongHold: -1}} {
		config.DSN = "postgres://localhost/x"
		_, err := monitor.Open(config)
		var wrong *monitor.ConfigError
		require.ErrorAs(t, err, &wrong)
	}
}

func TestEachVerdictIsExplained(t *testing.T) {
	t.Parallel()
	var docs []byte
	for _, page := range []string{"incidents.md", "incidents-of-turns.md"} {
		text, err := os.ReadFile("../docs/how-to/" + page)
		require.NoError(t, err)
		docs = append(docs, text...)
	}
	for _, name := range monitor.VerdictNames() {
		assert.Contains(t, string(docs), "\n## "+name+"\n")
	}
}

// lists is a lock server that only lists.
type lists func(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error]

func (l lists) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return l(ctx, r)
}

func failing(err error) lists {
	return func(context.Context, lease.ListRequest) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, err) }
	}
}

func TestASiteHasLockServersWithTheirHealth(t *testing.T) {
	t.Parallel()
	away, err := monitor.Open(monitor.Config{Name: "shop", DSN: "postgres://nobody@127.0.0.1:1/shop?sslmode=disable"})
	require.NoError(t, err)
	t.Cleanup(away.Close)
	site, err := monitor.NewSite(away)
	require.NoError(t, err)
	store := leasetest.NewStore()
	_, err = store.Acquire(t.Context(), lease.AcquireRequest{Name: "report<b>", Holder: "web-3", TTL: time.Hour})
	require.NoError(t, err)
	asked := 0
	counted := lists(func(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
		asked++
		return func(yield func(lease.Record, error) bool) {
			for record, err := range store.List(ctx, r) {
				record.Waiters = new(17)
				yield(record, err)
			}
		}
	})
	require.NoError(t, site.AddLockServers(
		monitor.LockServer{Name: "locks", Leases: counted},
		monitor.LockServer{Name: "old", Leases: store},
		monitor.LockServer{Name: "denied", Leases: failing(leasehttp.ErrDenied)},
		monitor.LockServer{Name: "odd", Leases: failing(errors.New("password in it"))},
	))
	page := get(t, site, "/").Body.String()
	assert.Contains(t, page, "Leases of locks")
	assert.Contains(t, page, "<bdi>report&lt;b&gt;</bdi>")
	assert.Contains(t, page, "<bdi>web-3</bdi>")
	assert.Equal(t, 2, strings.Count(page, `data-label="Waiting">17</td>`), "of the server, and of its lease")
	assert.Contains(t, page, `data-label="Waiting"><span class="none">unknown</span></td>`, "control: a store does not say")
	assert.Contains(t, page, "it refuses this monitor&#39;s token")
	assert.NotContains(t, page, "password in it")
	assert.Equal(t, 1, asked)

	metrics := get(t, site, "/metrics").Body.String()
	for _, want := range []string{
		`pglatch_lock_server_up{server="locks"} 1`, `pglatch_lock_server_up{server="denied"} 0`, `pglatch_monitor_up{database="shop"} 0`,
		`pglatch_lock_server_leases{server="locks",state="held"} 1`, `pglatch_lock_server_leases{server="locks",state="expired"} 0`,
		`pglatch_lock_server_waiters{server="locks"} 17`,
	} {
		assert.Contains(t, metrics, want+"\n")
	}
	assert.NotContains(t, metrics, `leases{server="denied"`, "control: nothing is known of it")
	assert.NotContains(t, metrics, `waiters{server="old"`)
	assert.Contains(t, get(t, site, "/verdicts").Body.String(), `"down":["denied","odd","shop"]`)
}

// The code of a program must not end the process, or hold up what else is on the list.
func TestALockServersHostileCodeHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	site, err := monitor.NewSite()
	require.NoError(t, err)
	never := make(chan struct{})
	defer close(never)
	require.NoError(t, site.AddLockServers(
		monitor.LockServer{Name: "good", Leases: leasetest.NewStore()},
		monitor.LockServer{Name: "panics", Leases: lists(func(context.Context, lease.ListRequest) iter.Seq2[lease.Record, error] { panic("a bug") })},
		monitor.LockServer{Name: "exits", Leases: lists(func(context.Context, lease.ListRequest) iter.Seq2[lease.Record, error] {
			runtime.Goexit()
			return nil
		})},
		monitor.LockServer{Name: "hangs", Leases: lists(func(context.Context, lease.ListRequest) iter.Seq2[lease.Record, error] {
			<-never
			return func(func(lease.Record, error) bool) {}
		})},
	))
	for range 2 {
		assert.Contains(t, get(t, site, "/verdicts").Body.String(), `"down":["panics","exits","hangs"]`)
	}
}

func TestNamesInASiteAreUnique(t *testing.T) {
	t.Parallel()
	m, err := monitor.Open(monitor.Config{Name: "shop", DSN: "postgres://nobody@127.0.0.1:1/shop?sslmode=disable"})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	site, err := monitor.NewSite(m)
	require.NoError(t, err)
	for _, name := range []string{"", "shop", "Locks"} {
		var bad *monitor.ConfigError
		require.ErrorAs(t, site.AddLockServers(monitor.LockServer{Name: name}), &bad, name)
	}
	locks, more := monitor.LockServer{Name: "locks", Leases: leasetest.NewStore()}, monitor.LockServer{Name: "more", Leases: leasetest.NewStore()}
	require.Error(t, site.AddLockServers(more, monitor.LockServer{Name: "locks"}), "nobody can read it")
	require.Error(t, site.AddLockServers(more, locks, locks))
	require.NoError(t, site.AddLockServers(locks, more), "control: a refused call has added none")
	require.Error(t, site.AddLockServers(locks))
	_, err = monitor.NewSite(m, m)
	require.Error(t, err)
}
