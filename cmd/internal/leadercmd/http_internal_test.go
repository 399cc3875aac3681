package leadercmd

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// scraped parses what a scrape shows. Series have the order of their labels.
func scraped(t *testing.T, text io.Reader) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(text)
	require.NoError(t, err)
	return families
}

// Dashboards have these names, labels and types.
func TestAScrapeShowsWhatBecameOfTheNode(t *testing.T) {
	t.Parallel()
	const name = `7:"108"`
	m := newMetrics(name)
	e, err := leader.New(leader.Config{Name: name, Backend: leadertest.NewElection().Backend(), Callbacks: m.callbacks()})
	require.NoError(t, err)
	handler := m.of(e)
	scrape := func() *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return recorder
	}
	shows := func(want string) {
		t.Helper()
		recorder := scrape()
		assert.Equal(t, http.StatusOK, recorder.Code)
		assert.True(t, strings.HasPrefix(recorder.Header().Get("Content-Type"), "text/plain; version=0.0.4"))
		got, expected := scraped(t, recorder.Body), scraped(t, strings.NewReader(want))
		require.Len(t, got, len(expected))
		for name, family := range expected {
			assert.Equal(t, family.GetHelp(), got[name].GetHelp())
			assert.Equal(t, family.GetType(), got[name].GetType())
			assert.ElementsMatch(t, texts(family), texts(got[name]))
		}
	}
	shows(`# HELP leader_election_master_status 1 if this node leads.
# TYPE leader_election_master_status gauge
leader_election_master_status{database="",name="7:\"108\""} 0
# HELP leader_election_transitions_total What became of this node.
# TYPE leader_election_transitions_total counter
leader_election_transitions_total{database="",name="7:\"108\"",to="leader"} 0
leader_election_transitions_total{database="",name="7:\"108\"",to="recovered"} 0
leader_election_transitions_total{database="",name="7:\"108\"",to="released"} 0
leader_election_transitions_total{database="",name="7:\"108\"",to="lost"} 0
`)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, e.Run(ctx, func(context.Context) error {
		defer cancel()
		await.Until(t, await.Patience, func() bool { // callbacks run beside the work
			return strings.Contains(scrape().Body.String(), `to="leader"} 1`)
		})
		shows(`# HELP leader_election_master_status 1 if this node leads.
# TYPE leader_election_master_status gauge
leader_election_master_status{database="",name="7:\"108\""} 1
# HELP leader_election_transitions_total What became of this node.
# TYPE leader_election_transitions_total counter
leader_election_transitions_total{database="",name="7:\"108\"",to="leader"} 1
leader_election_transitions_total{database="",name="7:\"108\"",to="recovered"} 0
leader_election_transitions_total{database="",name="7:\"108\"",to="released"} 0
leader_election_transitions_total{database="",name="7:\"108\"",to="lost"} 0
`)
		return nil
	}))
}

func texts(family *dto.MetricFamily) (all []string) {
	for _, m := range family.GetMetric() {
		all = append(all, m.String())
	}
	return all
}
