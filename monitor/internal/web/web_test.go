package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/monitor/internal/web"
	"github.com/pglatch/pglatch/namespace"
)

var start = time.Date(2026, 3, 1, 3, 12, 40, 0, time.UTC)

// A world makes the States of a test.
type world struct {
	memory *incident.Memory
	looks  atomic.Int64
	locks  int
	fleet  *fleet.Fleet
	tables bool
	secret string // of the ids of keys
}

// look is the State of n keys that billing-2 holds, of which the first has a waiter.
func (w *world) look(context.Context) (*web.State, error) {
	at := start.Add(time.Duration(w.looks.Add(1)) * time.Second)
	age := at.Sub(start)
	in := incident.Input{ID: func(tag namespace.Tag) string { return w.secret + tag.String() }, At: at, Asked: at, Names: map[uint32]string{900: "billing-2"}, Server: incident.Server{Version: "17.2", Database: "shop", LockRoom: 6400, ConnLimit: 97}}
	a := introspect.Answer{Process: introspect.Process{ID: "x", Service: "billing", Host: "web-1", PID: 7, Clock: at}, Session: 900, AllLocks: w.locks, AllWaits: 1}
	for i := range w.locks {
		tag := namespace.Pair(1, int32(i)).Tag()
		text := fmt.Sprint("order/", i, "<b>")
		in.Rows = append(in.Rows, incident.Row{Session: incident.Session{PID: uint32(1000 + i), Name: "billing-2"}, Tag: tag, Text: text, Namespace: "order", Shown: true, Granted: true, Age: age})
		a.Locks = append(a.Locks, introspect.Lock{Key: text, Tag: tag, Session: uint32(1000 + i), Age: age, Label: "label & more"})
	}
	a.Waits = []introspect.Wait{{Key: "order/0<b>", Tag: namespace.Pair(1, 0).Tag(), Age: age}}
	a.Elections = []introspect.Election{
		{Name: "scheduler", Key: "1:100", Tags: []namespace.Tag{namespace.Pair(1, 100_000).Tag()}, Node: "node-a", State: "leader", Term: "1.4", HandOvers: []introspect.HandOver{{Age: age, Node: "node-a"}, {Age: 2 * age, Node: "node-b"}}},
	}
	in.Answers = []introspect.Answer{a}
	s := &web.State{Picture: incident.Build(in), Fleet: w.fleet, Tables: w.tables, Ended: time.Now()}
	s.Verdicts = w.memory.Look(s.Picture)
	s.Past, s.Sorted = *w.memory.Past(), incident.ByTrouble(s.Picture, s.Verdicts)
	return s, nil
}

func newWorld(locks int) (*world, *web.Page) {
	limits := incident.DefaultLimits()
	limits.Long = 3 * time.Second
	w := &world{memory: incident.NewMemory(limits), locks: locks}
	return w, web.New(web.Config{
		Look: w.look, Next: func(ctx context.Context, _ *web.State) (*web.State, error) { return w.look(ctx) },
		Refuse: func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) },
	})
}

func get(t *testing.T, p http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	return w
}

func TestEveryViewIsWholeWithoutJavaScriptAndEscapesWhatItShows(t *testing.T) {
	t.Parallel()
	_, p := newWorld(3)
	for range 5 {
		get(t, p, "/locks/")
	}
	for target, wants := range map[string][]string{
		"/locks/":                          {"order/0&lt;b&gt;", "billing-2", "label &amp; more", "has held", "1–3 of 3"},
		"/locks/graph":                     {"<svg", "order/0&lt;b&gt;", "waited for by billing-2"},
		"/locks/elections":                 {"scheduler", "node-a", "leads for", "1.4", "node-b"},
		"/locks/happened":                  {"raised", "has held order/0&lt;b&gt;"},
		"/locks/at?t=03:12:43":             {"03:12:43", "billing-2 held order/0&lt;b&gt; for 3.0 s, 1 waited"},
		"/locks/at?t=2026-03-01T03:12:43Z": {"03:12:43"},
		"/":                                {"order/1"},
		"":                                 {"order/1"},
	} {
		target = strings.TrimPrefix(target, "/locks")
		if target == "" {
			target = "/"
		}
		w := get(t, p, target)
		require.Equal(t, http.StatusOK, w.Code, target)
		for _, want := range wants {
			assert.Contains(t, w.Body.String(), want, target)
		}
		assert.NotContains(t, w.Body.String(), "<b>", target)
		assert.NotContains(t, w.Body.String(), "style=", target)
		assert.NotContains(t, w.Body.String(), "<script>", target)
		csp := w.Header().Get("Content-Security-Policy")
		assert.Contains(t, csp, "default-src 'none'")
		assert.NotContains(t, csp, "unsafe")
	}
	for _, target := range []string{"/nothing", "/at?t=yesterday", "/?older=long", "/live?view=nothing"} {
		assert.Contains(t, []int{http.StatusNotFound, http.StatusBadRequest}, get(t, p, target).Code, target)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

func TestNothingIsWrongOnlyInWhatWasRead(t *testing.T) {
	t.Parallel()
	const why = "may not read the tables of turns"
	w, p := newWorld(0)
	w.fleet = &fleet.Fleet{}
	body := get(t, p, "/").Body.String()
	assert.Contains(t, body, "Nothing is wrong that this page knows of.")
	assert.NotContains(t, body, why, "control: all tables were read")

	w.fleet = &fleet.Fleet{Problems: []string{why}}
	assert.Contains(t, get(t, p, "/").Body.String(), why)
	assert.Equal(t, 1, strings.Count(get(t, p, "/fleet").Body.String(), why))
}

func TestAKeyHasAPageThatItsLinkDoesNotTell(t *testing.T) {
	t.Parallel()
	_, p := newWorld(3)
	body := get(t, p, "/?find=order/0").Body.String()
	assert.NotContains(t, body, "order/1")
	_, link, _ := strings.Cut(body, `<tr role="row" id="`)
	_, link, _ = strings.Cut(link, `<a href="`)
	link, _, _ = strings.Cut(link, `"`)
	key := get(t, p, "/"+link).Body.String()
	for _, want := range []string{"order/0&lt;b&gt;", "pg_terminate_backend(1000)", "(1, 0, 2)", "billing, process 7 on web-1", "in the process"} {
		assert.Contains(t, key, want)
	}
	assert.Contains(t, get(t, p, "/key?id=unknown").Body.String(), "Nobody holds it")
}

func TestFiltersKeepWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	_, p := newWorld(250)
	assert.Contains(t, get(t, p, "/").Body.String(), "1–100 of 250")
	assert.Contains(t, get(t, p, "/?page=2").Body.String(), "201–250 of 250")
	assert.Contains(t, get(t, p, "/?page=99").Body.String(), "201–250 of 250")
	assert.Contains(t, get(t, p, "/?find=ORDER/24").Body.String(), "1–11 of 11, which match of 250")
	assert.Contains(t, get(t, p, "/?find=1003").Body.String(), "1–1 of 1", "a session's pid")
	assert.Contains(t, get(t, p, "/?find=billing-2").Body.String(), "of 250")
	assert.Contains(t, get(t, p, "/?older=1h").Body.String(), "None of 250 keys matches.")
	assert.Contains(t, get(t, p, "/?older=2s").Body.String(), "of 250")
}

func TestTheHeadsOfColumnsKeepAFilterThatIsTyped(t *testing.T) {
	t.Parallel()
	_, p := newWorld(3)
	for target, want := range map[string]string{"/live?view=&find=order%2F1": `href="?find=order%2F1&amp;sort=holder"`, "/live?view=": `href="?sort=holder"`} {
		stream(t, p, target, func(u update) bool {
			assert.Contains(t, u.Parts["heads"], want)
			return true
		})
	}
	body := get(t, p, "/?sort=holder").Body.String()
	assert.Contains(t, body, `aria-sort="ascending"><a href="?">Held by</a>`)
}

func TestShardsAreSortedByAColumnThatKeepsTheFilter(t *testing.T) {
	t.Parallel()
	w, p := newWorld(0)
	w.fleet = &fleet.Fleet{Groups: []fleet.Group{{Name: "tenant=7", Shards: 3, Owned: 2, List: []fleet.Shard{
		{Name: "acme-2", Owner: "web-2"}, {Name: "acme-1", Owner: "web-3", Pin: "web-1"}, {Name: "acme-3"},
	}}}}
	names := regexp.MustCompile(`acme-\d`)
	for target, want := range map[string][]string{
		"/fleet": {"acme-3", "acme-1", "acme-2"}, "/fleet?sort=shard": {"acme-1", "acme-2", "acme-3"}, "/fleet?sort=owner": {"acme-2", "acme-1", "acme-3"},
		"/fleet?sort=pin": {"acme-1", "acme-3", "acme-2"}, "/fleet?sort=owner&find=web-3": {"acme-1"},
	} {
		assert.Equal(t, want, names.FindAllString(get(t, p, target).Body.String(), -1), target)
	}
	body := get(t, p, "/fleet?sort=owner&find=acme").Body.String()
	assert.Contains(t, body, `aria-sort="ascending"><a href="?find=acme">Owner</a>`)
	assert.Contains(t, body, `<a href="?find=acme&amp;sort=shard">Shard</a>`)
	assert.Contains(t, body, `<input type="hidden" name="sort" value="owner">`)
	assert.Equal(t, http.StatusBadRequest, get(t, p, "/fleet?sort=held").Code)
}

func TestTablesOfTheFleetAreSortedByTheirColumns(t *testing.T) {
	t.Parallel()
	w, p := newWorld(0)
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tick := func(name, node string, took time.Duration, missed ...time.Time) fleet.Job {
		return fleet.Job{Name: name, Last: fleet.Run{Tick: at, State: "RAN", Node: node, Began: at, Ended: at.Add(took)}, Missed: missed}
	}
	w.fleet = &fleet.Fleet{
		Groups:    []fleet.Group{{Name: "tenant=7", Nodes: []fleet.Node{{Identity: "xx-2", Owned: 1, Fair: 2}, {Identity: "xx-1", Owned: 3, Fair: 1}, {Identity: "xx-3", Owned: 2, Fair: 3}}}},
		Jobs:      []fleet.Job{tick("yy-3", "c", time.Second), tick("yy-1", "b", time.Hour), tick("yy-2", "", time.Minute, at)},
		Mailboxes: []fleet.Mailbox{{Name: "chat", Turns: []fleet.Turn{{Entity: "zz-2", Node: "a", Attempt: 1, Age: time.Hour}, {Entity: "zz-1", Node: "b", Attempt: 3, Age: time.Second}}}},
	}
	for i := range 102 {
		w.fleet.Leases = append(w.fleet.Leases, fleet.Lease{Name: fmt.Sprintf("vv-%03d", 200-i), State: "HELD", Token: uint64(i), Left: time.Duration(i%7) * time.Second})
	}
	rows := func(target, name string) []string {
		return regexp.MustCompile(`<bdi>(`+name+`-\d+)</bdi></th>`).FindAllString(get(t, p, target).Body.String(), 3)
	}
	of := func(names ...string) (all []string) {
		for _, name := range names {
			all = append(all, "<bdi>"+name+"</bdi></th>")
		}
		return all
	}
	for target, want := range map[string][]string{
		"": of("xx-2", "xx-1", "xx-3"), "?sort=node": of("xx-1", "xx-2", "xx-3"), "?sort=owns": of("xx-1", "xx-3", "xx-2"), "?sort=fair": of("xx-3", "xx-2", "xx-1"),
		"?sort=took": of("xx-2", "xx-1", "xx-3"),
	} {
		assert.Equal(t, want, rows("/fleet"+target, "xx"), target)
	}
	for target, want := range map[string][]string{
		"": of("yy-2", "yy-3", "yy-1"), "?sort=job": of("yy-1", "yy-2", "yy-3"), "?sort=runner": of("yy-1", "yy-3", "yy-2"), "?sort=took": of("yy-1", "yy-2", "yy-3"),
		"?sort=missed": of("yy-2", "yy-3", "yy-1"),
	} {
		assert.Equal(t, want, rows("/fleet"+target, "yy"), target)
	}
	for target, want := range map[string][]string{"": of("zz-2", "zz-1"), "?sort=entity": of("zz-1", "zz-2"), "?sort=attempt": of("zz-1", "zz-2"), "?sort=running": of("zz-2", "zz-1")} {
		assert.Equal(t, want, rows("/fleet"+target, "zz"), target)
	}
	for target, want := range map[string][]string{
		"": of("vv-200", "vv-199", "vv-198"), "?sort=lease": of("vv-099", "vv-100", "vv-101"), "?sort=token": of("vv-099", "vv-100", "vv-101"), "?sort=left": of("vv-194", "vv-187", "vv-180"),
	} {
		assert.Equal(t, want, rows("/fleet"+target, "vv"), target)
	}
	body := get(t, p, "/fleet?sort=token").Body.String()
	assert.Contains(t, body, "and 2 more")
	assert.Contains(t, body, `aria-sort="descending"><a href="?">Token</a>`)
	assert.Equal(t, http.StatusBadRequest, get(t, p, "/elections?sort=shard").Code)
	assert.Equal(t, http.StatusOK, get(t, p, "/elections?sort=holder").Code)
}

func TestALiveViewRefusesWhatItsPageRefuses(t *testing.T) {
	t.Parallel()
	_, p := newWorld(1)
	gone, cancel := context.WithCancel(t.Context()) // a stream ends at once
	cancel()
	for target, want := range map[string]int{
		"": http.StatusOK, "sort=zz": http.StatusBadRequest, "older=zz": http.StatusBadRequest, "view=fleet&sort=owner": http.StatusOK, "view=fleet&sort=zz": http.StatusBadRequest,
		"view=elections&sort=holder": http.StatusOK, "view=elections&sort=shard": http.StatusBadRequest, "view=zz": http.StatusBadRequest,
	} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(gone, http.MethodGet, "/live?"+target, http.NoBody))
		assert.Equal(t, want, w.Code, target)
	}
}

// An update is what the stream sends.
type update struct {
	Now   int64             `json:"now"`
	Parts map[string]string `json:"parts"`
	Rows  map[string]string `json:"rows"`
	Order []string          `json:"order"`
}

// stream reads updates until take is done.
func stream(t *testing.T, p http.Handler, target string, take func(u update) (done bool)) {
	t.Helper()
	server := httptest.NewServer(p)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+target, http.NoBody)
	require.NoError(t, err)
	response, err := server.Client().Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	in := bufio.NewScanner(response.Body)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		var u update
		require.NoError(t, json.Unmarshal([]byte(data), &u))
		if take(u) {
			return
		}
	}
	require.NoError(t, in.Err())
	require.Fail(t, "the stream ended")
}

func TestTheStreamSendsWhatChangedAndNothingForTimeThatPasses(t *testing.T) {
	t.Parallel()
	w, p := newWorld(150)
	w.memory = incident.NewMemory(incident.DefaultLimits())
	n := 0
	stream(t, p, "/live?view=&find=order/14", func(u update) bool {
		n++
		switch n {
		case 1:
			assert.Len(t, u.Rows, 11)
			assert.Len(t, u.Order, 11)
			assert.Contains(t, u.Parts, "status")
		case 2, 3:
			assert.Empty(t, u.Rows, "a second later the same keys are held")
			assert.Empty(t, u.Order)
			assert.NotContains(t, u.Parts, "paging")
		}
		return n == 3
	})
	assert.Positive(t, w.looks.Load())
}

func TestTheStreamSaysThatTheDatabaseDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := web.New(web.Config{Next: func(context.Context, *web.State) (*web.State, error) { return nil, errors.New("s3cret") }})
	ctx, cancel := context.WithCancel(t.Context())
	w := &recorder{ResponseRecorder: httptest.NewRecorder(), flushed: cancel}
	p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/live?view=", nil))
	assert.Contains(t, w.Body.String(), "event: down\ndata: ")
	assert.NotContains(t, w.Body.String(), "s3cret")
}

func TestTheLeasesOfAStoreAreShown(t *testing.T) {
	t.Parallel()
	w, _ := newWorld(1)
	p := web.New(web.Config{Look: w.look, Leases: func(_ context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
		return func(yield func(lease.Record, error) bool) {
			assert.Positive(t, r.Limit)
			held := lease.Lease{Claim: lease.Claim{Name: "nightly<b>", Holder: "worker-1", Token: 33}, AcquiredAt: start, Remaining: 20 * time.Second}
			_ = yield(lease.Record{Lease: held, State: lease.Held}, nil) && yield(lease.Record{}, errors.New("s3cret"))
		}
	}})
	body := get(t, p, "/elections").Body.String()
	for _, want := range []string{"nightly&lt;b&gt;", "worker-1", "33", "held", "20 s", "The store of leases does not answer."} {
		assert.Contains(t, body, want)
	}
	assert.NotContains(t, body, "s3cret")
}

// A recorder tells when an event was sent.
type recorder struct {
	*httptest.ResponseRecorder
	flushed func()
}

func (r *recorder) Flush() { r.flushed() }

func TestTwentyThousandLocksAreSentAHundredAtATime(t *testing.T) {
	t.Parallel()
	_, p := newWorld(20_000)
	began := time.Now()
	w := get(t, p, "/")
	t.Logf("%d bytes, %v with the look", w.Body.Len(), time.Since(began))
	assert.Less(t, w.Body.Len(), 400_000)
	assert.Equal(t, 100, strings.Count(w.Body.String(), "<tr role=\"row\" id="))
}

func TestMetricsHaveEachVerdict(t *testing.T) {
	t.Parallel()
	_, p := newWorld(2)
	for range 5 {
		get(t, p, "/")
	}
	body := get(t, p, "/metrics").Body.String()
	assert.Contains(t, body, `pglatch_verdict{name="held-long",severity="warning",database=""} 1`)
	assert.Contains(t, body, `pglatch_verdict{name="held-long",severity="note",database=""} 1`)
	for _, name := range incident.Names() {
		assert.Equal(t, 3, strings.Count(body, fmt.Sprintf("pglatch_verdict{name=%q,", name)), name)
	}
	assert.Contains(t, get(t, p, "/verdicts").Body.String(), `"name":"held-long"`)
}

func TestAMetricCountsTablesThatWereNotRead(t *testing.T) {
	t.Parallel()
	w, p := newWorld(0)
	assert.NotContains(t, get(t, p, "/metrics").Body.String(), "pglatch_tables_unread", "this monitor reads none")
	w.tables = true
	for want, f := range map[int]*fleet.Fleet{0: {}, 1: nil, 2: {Problems: []string{"a", "b"}}} {
		w.fleet = f
		assert.Contains(t, get(t, p, "/metrics").Body.String(), fmt.Sprintf("pglatch_tables_unread{database=\"\"} %d\n", want))
	}
}

func TestAMetricCountsTheLeasesOfADatabase(t *testing.T) {
	t.Parallel()
	w, p := newWorld(0)
	w.fleet = &fleet.Fleet{}
	assert.NotContains(t, get(t, p, "/metrics").Body.String(), "pglatch_leases", "perhaps there is no store")
	w.fleet = &fleet.Fleet{Leases: []fleet.Lease{{Name: "a", State: "HELD"}, {Name: "b", State: "FREE"}, {Name: "c", State: "HELD"}}}
	body := get(t, p, "/metrics").Body.String()
	assert.Contains(t, body, "pglatch_leases{database=\"\",state=\"held\"} 2\n")
	assert.Contains(t, body, "pglatch_leases{database=\"\",state=\"expired\"} 0\n")
}

func TestACardNamesWhoAndLinksItsKeys(t *testing.T) {
	t.Parallel()
	_, p := newWorld(8)
	for range 5 {
		get(t, p, "/")
	}
	cards, _, _ := strings.Cut(get(t, p, "/").Body.String(), "Locks now")
	held, idle, found := strings.Cut(cards, "7 keys are held for more than")
	require.True(t, found, "the key with a waiter has a card of its own, before the note")
	assert.Contains(t, held, "<bdi>billing-2</bdi> · <a href=\"key?id=")
	assert.Equal(t, 1, strings.Count(held, ">Open order/0"))
	assert.Contains(t, idle, "<bdi>billing-2</bdi> · <a href=\"key?id=")
	assert.Equal(t, 5, strings.Count(idle, ">Open order/"))
	assert.Contains(t, idle, "2 more keys")

	_, few := newWorld(4)
	for range 5 {
		get(t, few, "/")
	}
	assert.NotContains(t, get(t, few, "/").Body.String(), "more key", "control: three have links")
}

func TestTheLastHourIsOnTheFirstPage(t *testing.T) {
	t.Parallel()
	_, p := newWorld(3)
	for range 8 {
		get(t, p, "/")
	}
	_, hour, found := strings.Cut(get(t, p, "/").Body.String(), "The last hour")
	require.True(t, found)
	for _, want := range []string{
		"<bdi>order</bdi>", `aria-label="1 waited at most"`, `aria-label="held for at most `, "raised", "has held order/0&lt;b&gt;", `href="happened"`,
	} {
		assert.Contains(t, hour, want)
	}
	_, waiting, _ := strings.Cut(hour, `1 waited at most"><path d="`)
	path, _, _ := strings.Cut(waiting, `"`)
	assert.Equal(t, 1, strings.Count(path, "M"), "it was seen without a gap: %s", path)
	assert.NotContains(t, path, "M0 ", "control: nothing is drawn for the time before")

	_, none := newWorld(0)
	_, hour, _ = strings.Cut(get(t, none, "/").Body.String(), "The last hour")
	assert.NotContains(t, hour, "has held", "control")
}
