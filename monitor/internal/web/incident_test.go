package web_test

import (
	"context"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/monitor/internal/web"
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
