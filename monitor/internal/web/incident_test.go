package web_test

import (
	"context"
	"html"
	"net/http"
	"regexp"
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
