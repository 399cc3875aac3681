package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/internal/legible"
)

// An incidentView is the page of one verdict, also after it is over. Its address says what it is about, for a monitor that
// no longer knows it.
type incidentView struct {
	Card   *card
	Cause  *card // the verdict that it is a consequence of; nil = none
	Over   bool
	Events []incident.Event

	Name, Key, Since string // what the address says of an incident that is not known; "" = nothing
	Doc              string // explains verdicts of this name
}

// incidentPage is the page of one verdict: as it is now, or as it was last in the recorded hour.
func incidentPage(_ context.Context, v *view, asked url.Values) {
	v.Title = "Incident"
	v.Parts = []string{"incident"}
	i := &incidentView{}
	v.Incident = i
	id := asked.Get("id")
	has := func(verdict *incident.Verdict) bool { return cardID(verdict) == id }
	i.find(v, v.state.Verdicts, has)
	for at := len(v.state.Past.Frames) - 1; at >= 0 && i.Card == nil; at-- {
		i.Over = i.find(v, v.state.Past.Frames[at].Verdicts, has) > 0
	}
	if i.Over {
		i.Card.Age, i.Cause = age{}, nil
	}
	if i.Card == nil { // its address may come from another monitor, or from before a restart, which give keys other ids
		name, key := asked.Get("verdict"), asked.Get("key")
		if i.find(v, v.state.Verdicts, func(verdict *incident.Verdict) bool { return key != "" && verdict.Name == name && verdict.Key == key }) > 1 {
			i.Card, i.Cause = nil, nil
		}
	}
	if i.Card == nil {
		v.status = http.StatusNotFound
		i.read(asked)
		return
	}
	v.Title = i.Card.Text
	keys := i.Card.Keys()
	i.Card.Links, i.Card.MoreKeys = v.refs(keys), 0
	if i.Card.Link != "" {
		i.Card.Links = nil
	}
	for at := len(v.state.Past.Events) - 1; at >= 0 && len(i.Events) < 50; at-- {
		if e := &v.state.Past.Events[at]; e.KeyID != "" && slices.Contains(keys, e.KeyID) {
			i.Events = append(i.Events, *e)
		}
	}
}

// find finds a verdict, also among the consequences of another one, and returns how many there are.
func (i *incidentView) find(v *view, all []incident.Verdict, has func(*incident.Verdict) bool) (found int) {
	take := func(verdict, cause *incident.Verdict) {
		if !has(verdict) {
			return
		}
		found++
		i.Card, i.Cause = new(v.card(verdict)), nil
		if cause != nil {
			i.Cause = new(v.card(cause))
		}
	}
	for at := range all {
		take(&all[at], nil)
		for j := range all[at].Consequences {
			take(&all[at].Consequences[j], &all[at])
		}
	}
	return found
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
