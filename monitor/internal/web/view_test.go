package web_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/internal/web"
	"github.com/pglatch/pglatch/namespace"
)

func TestTheAddressOfAnIncidentSaysWhatItWasAfterARestart(t *testing.T) {
	t.Parallel()
	_, p := newWorld(2)
	for range 5 {
		get(t, p, "/")
	}
	found := regexp.MustCompile(`href="(incident[?][^"]*held-long[^"]*)"`).FindStringSubmatch(get(t, p, "/").Body.String())
	require.NotNil(t, found)
	address := "/" + html.UnescapeString(found[1])
	now := get(t, p, address)
	assert.Equal(t, http.StatusOK, now.Code)
	assert.Contains(t, now.Body.String(), "has held order/0&lt;b&gt;", "control: it is known")

	_, restarted := newWorld(0)
	w := get(t, restarted, address)
	assert.Equal(t, http.StatusNotFound, w.Code)
	for _, want := range []string{
		"This incident is not raised now. It ended more than an hour ago, or before this monitor was started.",
		"The address says: <strong>held-long</strong>", "<bdi>order/0&lt;b&gt;</bdi>", "raised at <time>" + start.Format("2006-01-02"), "#held-long",
	} {
		assert.Contains(t, w.Body.String(), want)
	}
	forged := get(t, restarted, "/incident?id=v-1&verdict=%3Cscript%3E&key=%3Cscript%3E&since=never")
	assert.Contains(t, forged.Body.String(), "No incident of this address is known.")
	assert.NotContains(t, forged.Body.String(), "The address says")
}

// incidentAddress is the address of the first card of a name.
func incidentAddress(t *testing.T, p http.Handler, name string) string {
	t.Helper()
	found := regexp.MustCompile(`href="(incident[?][^"]*` + name + `[^"]*)"`).FindStringSubmatch(get(t, p, "/").Body.String())
	require.NotNil(t, found)
	return "/" + html.UnescapeString(found[1])
}

func TestAnIncidentThatIsStillRaisedIsFoundByItsNameAndKeyAfterARestart(t *testing.T) {
	t.Parallel()
	_, p := newWorld(2)
	restarted, other := newWorld(2)
	restarted.secret = "other"
	for range 5 {
		get(t, p, "/")
		get(t, other, "/")
	}
	address := incidentAddress(t, p, "held-long")
	require.NotEqual(t, address, incidentAddress(t, other, "held-long"), "control: another process gives keys other ids")
	w := get(t, other, address)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "has held order/0&lt;b&gt;")
	assert.NotContains(t, w.Body.String(), "It is over")
	assert.Equal(t, http.StatusNotFound, get(t, other, strings.ReplaceAll(address, "order", "ordre")).Code, "control: not another key")
}

func TestAnIncidentThatBecameAConsequenceIsNotOver(t *testing.T) {
	t.Parallel()
	key := &incident.Key{ID: "k", Text: "order/7", Kind: incident.Mutex}
	long := incident.Verdict{Name: incident.HeldLong, Severity: incident.Warning, Key: "order/7", KeyID: "k", Text: "billing-2 has held order/7 for an hour."}
	silent := incident.Verdict{Name: incident.HolderSilent, Severity: incident.Critical, Key: "order/7", KeyID: "k", Text: "billing-2 holds order/7 and is silent.", Consequences: []incident.Verdict{long}}
	s := &web.State{Picture: &incident.Picture{At: start, Keys: []*incident.Key{key}}, Verdicts: []incident.Verdict{long}, Ended: time.Now()}
	p := web.New(web.Config{Look: func(context.Context) (*web.State, error) { return s, nil }})
	address := incidentAddress(t, p, "held-long")
	s = &web.State{Picture: s.Picture, Verdicts: []incident.Verdict{silent}, Ended: time.Now(), Past: incident.Past{Frames: []incident.Frame{{At: start, Verdicts: []incident.Verdict{long}}}}}
	body := get(t, p, address).Body.String()
	assert.Contains(t, body, "<strong>"+long.Text+"</strong>")
	assert.Contains(t, body, "It is a consequence of: <a href=\"incident?")
	assert.Contains(t, body, silent.Text)
	assert.NotContains(t, body, "It is over")

	s = &web.State{Picture: s.Picture, Ended: time.Now(), Past: s.Past}
	body = get(t, p, address).Body.String()
	assert.Contains(t, body, "It is over", "control: nothing is raised")
	assert.NotContains(t, body, "a consequence of")
}

func TestThePageOfAnIncidentLinksEachOfItsKeys(t *testing.T) {
	t.Parallel()
	_, p := newWorld(30)
	for range 5 {
		get(t, p, "/")
	}
	cards, _, _ := strings.Cut(get(t, p, "/").Body.String(), "Locks now")
	found := regexp.MustCompile(`<a href="([^"]*)">24 more keys`).FindStringSubmatch(cards)
	require.NotNil(t, found, "control: the card links 5 of 29")
	assert.Equal(t, 29, strings.Count(get(t, p, "/"+html.UnescapeString(found[1])).Body.String(), ">Open order/"))
}

func TestAVerdictThatIsFoldedIsCounted(t *testing.T) {
	t.Parallel()
	body := func(consequences ...incident.Verdict) string {
		s := &web.State{Picture: incident.Build(incident.Input{At: start}), Ended: time.Now(), Verdicts: []incident.Verdict{
			{Name: incident.Deadlock, Severity: incident.Critical, Consequences: consequences},
		}}
		return get(t, web.New(web.Config{Look: func(context.Context) (*web.State, error) { return s, nil }}), "/metrics").Body.String()
	}
	folded := body(incident.Verdict{Name: incident.HeldLong, Severity: incident.Warning}, incident.Verdict{Name: incident.HeldLong, Severity: incident.Warning})
	assert.Contains(t, folded, `pglatch_verdict{name="deadlock",severity="critical",database=""} 1`)
	assert.Contains(t, folded, `pglatch_verdict{name="held-long",severity="warning",database=""} 2`)
	assert.Contains(t, body(), `pglatch_verdict{name="held-long",severity="warning",database=""} 0`, "control")
}

// silentLeader is the page of an election whose leader has been silent for so long, of a lease of 15 s.
func silentLeader(silent time.Duration) http.Handler {
	said := introspect.Answer{Process: introspect.Process{ID: "x", Service: "billing", Host: "web-1", PID: 7}, Session: 900, Elections: []introspect.Election{
		{Name: "scheduler", Key: "1:100", Tags: []namespace.Tag{namespace.Pair(1, 100).Tag()}, Node: "node-a", State: "leader", Session: 5, Lease: 15 * time.Second},
	}}
	picture := incident.Build(incident.Input{At: start, Silent: []incident.Silent{{
		Silent: introspect.Silent{Session: 900, ApplicationName: "billing"}, Last: &said, Spoke: start.Add(-silent),
	}}})
	return web.New(web.Config{Look: func(context.Context) (*web.State, error) { return &web.State{Picture: picture, Ended: time.Now()}, nil }})
}

func TestALeaderThatIsSilentMayLeadUntilItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	body := get(t, silentLeader(2*time.Second), "/elections").Body.String()
	assert.Contains(t, body, "<strong>node-a</strong> is silent; it may lead for up to 13 s.")
	assert.NotContains(t, body, "Nobody leads.")

	body = get(t, silentLeader(15*time.Second), "/elections").Body.String()
	assert.Contains(t, body, "Nobody leads.", "control: its lease is over")
}

func TestWhatUsersNamedNeitherFillsThePageNorTurnsItsWords(t *testing.T) {
	t.Parallel()
	tag := namespace.Pair(1, 7).Tag()
	long, turning, hebrew := strings.Repeat("x", 3000), "order/7\u202etxt", "דוח"
	a := introspect.Answer{
		Process: introspect.Process{ID: "x", Service: turning, Host: hebrew, PID: 7}, Session: 900, AllLocks: 1, AllWaits: 1,
		Locks:     []introspect.Lock{{Key: turning, Tag: tag, Session: 5, Age: time.Hour, Label: long}},
		Waits:     []introspect.Wait{{Key: turning, Tag: tag, Age: time.Minute, Label: long}},
		Elections: []introspect.Election{{Name: long, Key: "1:100", Tags: []namespace.Tag{namespace.Pair(1, 100).Tag()}, Node: turning, State: "follower", Error: long, Leader: long}},
	}
	picture := incident.Build(incident.Input{
		At: start, Asked: start, Answers: []introspect.Answer{a}, ID: func(namespace.Tag) string { return "id" },
		Rows: []incident.Row{{Session: incident.Session{PID: 5, Name: "app"}, Tag: tag, Text: turning, Shown: true, Granted: true}},
	})
	memory := incident.NewMemory(incident.DefaultLimits())
	s := &web.State{Picture: picture, Verdicts: memory.Look(picture), Ended: time.Now()}
	s.Past, s.Sorted = *memory.Past(), incident.ByTrouble(picture, s.Verdicts)
	require.NotEmpty(t, s.Verdicts)
	p := web.New(web.Config{Look: func(context.Context) (*web.State, error) { return s, nil }})
	for _, view := range []string{"/", "/key?id=id", "/graph", "/elections", "/happened", "/verdicts"} {
		body := get(t, p, view).Body.String()
		assert.NotContains(t, body, strings.Repeat("x", 700), view)
		assert.NotContains(t, body, "\u202e", view)
		if i := strings.Index(body, hebrew); i > 0 {
			assert.Equal(t, "\u2068", body[i-len("\u2068"):i], view)
		}
	}
	body := get(t, p, "/key?id=id").Body.String()
	assert.Contains(t, body, "order/7?txt", "control: it is shown")
	assert.Contains(t, body, hebrew, "control: it is shown")
	assert.Contains(t, body, "pglatch ask "+tag.String(), "a command takes the key as it is")
	assert.Contains(t, body, `<h1 class="key" data-key="`+tag.String()+`">order/7?txt`, "and so does an action: what is shown may be the name of another key")
	assert.Contains(t, body, `<small class="label"><bdi>xxx`)
}

func TestThePageSaysWhyTheDatabaseDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"PostgreSQL says: sorry, too many clients already": &pgconn.PgError{Code: "53300", Message: "sorry, too many clients already"},
		"the network says: connect: connection refused":    &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"the name cannot be resolved":                      &net.OpError{Op: "dial", Err: &net.DNSError{Name: "s3cret", IsNotFound: true}},
		"nothing came from it in time":                     context.DeadlineExceeded,
		"the log of this monitor says why":                 errors.New("s3cret"),
	} {
		p := web.New(web.Config{
			Look:   func(context.Context) (*web.State, error) { return nil, fmt.Errorf("s3cret: %w", err) },
			Refuse: func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) },
		})
		answer := get(t, p, "/")
		assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
		assert.Contains(t, answer.Body.String(), want)
		assert.NotContains(t, answer.Body.String(), "s3cret")
		assert.NotContains(t, answer.Body.String(), "10.1.2.3")
	}
}
