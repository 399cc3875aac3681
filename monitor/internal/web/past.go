package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
)

// eventsShown is how many of the newest events are shown.
const eventsShown = 300

// A pastView is the list of past events.
type pastView struct {
	Events []incident.Event
	All    int
	Began  string
	Find   string
}

// A frameView is a moment of the past.
type frameView struct {
	incident.Frame

	Asked          string
	Events         []incident.Event
	Earlier, Later string
	None           bool
}

func atLink(t time.Time) string { return "at?t=" + url.QueryEscape(t.UTC().Format(time.RFC3339)) }

// happened is the view of past events, the newest first.
func happened(_ context.Context, v *view, asked url.Values) {
	v.Title = "What happened"
	v.Parts = []string{"past"}
	past := &v.state.Past
	find := strings.TrimSpace(asked.Get("find"))
	pv := &pastView{Find: find, Began: clock(past.Began)}
	for i := len(past.Events) - 1; i >= 0; i-- {
		e := &past.Events[i]
		if !strings.Contains(strings.ToLower(e.Text+" "+string(e.Kind)), strings.ToLower(find)) {
			continue
		}
		if pv.All++; len(pv.Events) < eventsShown {
			pv.Events = append(pv.Events, *e)
		}
	}
	v.Past = pv
}

// moment is the view of a point in time: "?t=03:12:40", or with a date.
func moment(_ context.Context, v *view, asked url.Values) {
	v.Title = "A point in time"
	v.Live = "" // it does not change
	at, ok := v.readTime(asked.Get("t"))
	if !ok {
		v.problem, v.status = "t: write a time as 03:12:40, or 2026-01-02T03:12:40Z, in UTC", http.StatusBadRequest
		return
	}
	past := &v.state.Past
	frame, ok := past.At(at)
	fv := &frameView{Frame: frame, Asked: clock(at), None: !ok}
	v.Frame = fv
	if !ok {
		return
	}
	v.Title = clock(frame.At)
	i := slices.IndexFunc(past.Frames, func(f incident.Frame) bool { return f.At.Equal(frame.At) })
	if i > 0 {
		fv.Earlier = atLink(past.Frames[i-1].At.Add(time.Second - time.Nanosecond))
	}
	if i+1 < len(past.Frames) {
		fv.Later = atLink(past.Frames[i+1].At.Add(time.Second - time.Nanosecond))
	}
	for j := len(past.Events) - 1; j >= 0; j-- {
		if e := &past.Events[j]; at.Sub(e.At).Abs() <= 30*time.Second && len(fv.Events) < eventsShown {
			fv.Events = append(fv.Events, *e)
		}
	}
}

// readTime parses a time of day within the last 24 hours, or a time with a date.
func (v *view) readTime(text string) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.Add(time.Second - time.Nanosecond), true // the second ends later
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		at, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		now := v.At.UTC()
		at = time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(), int(time.Second-time.Nanosecond), time.UTC)
		if at.After(now.Add(time.Minute)) {
			at = at.AddDate(0, 0, -1)
		}
		return at, true
	}
	return time.Time{}, false
}
