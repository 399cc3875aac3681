package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/monitor/internal/incident"
)

// An incidentView is the page of one verdict, also after it is over. Its address says what it is about, for a monitor that
// no longer knows it.
type incidentView struct {
	Card   *card
	Over   bool
	Events []eventView

	Name, Key, Since string // what the address says of an incident that is not known; "" = nothing
	Doc              string // explains verdicts of this name
}

// incidentPage is the page of one verdict: as it is now, or as it was last in the recorded hour.
func incidentPage(_ context.Context, v *view, asked url.Values) {
	v.Title = "Incident"
	v.Parts = []string{"incident"}
	v.Incident = &incidentView{}
	id := asked.Get("id")
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
		v.Incident.read(asked)
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

// read takes what an address says of its incident. Anybody can write an address.
func (i *incidentView) read(q url.Values) {
	if name := q.Get("verdict"); slices.Contains(incident.Names(), name) {
		i.Name, i.Doc = name, incident.Doc(name)
	}
	i.Key = legible.Quote(q.Get("key"), nameShown)
	if since, err := time.Parse(minute, q.Get("since")); err == nil {
		i.Since = since.UTC().Format("2006-01-02 15:04")
	}
}

// minute is the layout of the time in an address.
const minute = "2006-01-02T15:04Z07:00"

// permalink is the address of a verdict.
func permalink(id string, v *incident.Verdict) string {
	q := url.Values{"id": {id}, "verdict": {v.Name}, "since": {v.Since.UTC().Format(minute)}}
	if v.Key != "" {
		q.Set("key", v.Key)
	}
	return "incident?" + q.Encode()
}

// cardID identifies a verdict in links.
func cardID(verdict *incident.Verdict) string {
	return "v-" + strconv.FormatUint(hash(verdict.Name+verdict.KeyID+verdict.Subject), 36)
}
