package web

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/pglatch/pglatch/monitor/internal/incident"
)

// An incidentView is the page of one verdict, also after it is over. Its address lasts as long as the monitor.
type incidentView struct {
	Card   *card
	Over   bool
	Events []eventView
}

// incidentPage is the page of one verdict: as it is now, or as it was last in the recorded hour.
func incidentPage(v *view, r *http.Request) {
	v.Title = "Incident"
	v.Parts = []string{"incident"}
	v.Incident = &incidentView{}
	id := r.URL.Query().Get("id")
	for i := range v.Verdicts {
		if v.Verdicts[i].ID == id {
			v.Incident.Card = &v.Verdicts[i]
		}
	}
	for i := len(v.state.Past.Frames) - 1; i >= 0 && v.Incident.Card == nil; i-- {
		f := &v.state.Past.Frames[i]
		for j := range f.Verdicts {
			if cardID(&f.Verdicts[j]) == id {
				c := v.card(&f.Verdicts[j])
				c.Age = age{}
				v.Incident.Card, v.Incident.Over = &c, true
				break
			}
		}
	}
	if v.Incident.Card == nil {
		v.status = http.StatusNotFound
		return
	}
	v.Title = v.Incident.Card.Text
	keys := v.Incident.Card.Keys()
	for i := len(v.state.Past.Events) - 1; i >= 0 && len(v.Incident.Events) < 50; i-- {
		if e := &v.state.Past.Events[i]; e.KeyID != "" && slices.Contains(keys, e.KeyID) {
			v.Incident.Events = append(v.Incident.Events, event(e))
		}
	}
}

// cardID identifies a verdict in links.
func cardID(verdict *incident.Verdict) string {
	return "v-" + strconv.FormatUint(hash(verdict.Name+verdict.KeyID+verdict.Subject), 36)
}
