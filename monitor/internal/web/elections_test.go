package web_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/monitor/internal/web"
	"github.com/pglatch/pglatch/namespace"
)

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
