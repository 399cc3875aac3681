package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// writeTimeout is the limit for sending one event to a client.
const writeTimeout = 10 * time.Second

// An update is the changes since the previous one.
type update struct {
	Now   int64             `json:"now"`             // of the server, in ms since 1970
	Parts map[string]string `json:"parts,omitempty"` // HTML, by name
	Rows  map[string]string `json:"rows,omitempty"`  // HTML of table rows, by id
	Order []string          `json:"order,omitempty"` // the ids of all rows, if their set or order changed
	Empty bool              `json:"empty,omitempty"` // there are no more rows
}

// A sent is the state that a client has.
type sent struct {
	parts, rows map[string]string
	order       []string
	starts      starts
}

// live sends the changes of a view, about one event a second, until the client leaves.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("view")
	if views[name] == nil {
		p.config.Refuse(w, http.StatusBadRequest, "view="+strconv.Quote(name)+": there is none")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer events
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	has := sent{parts: map[string]string{}, rows: map[string]string{}, starts: starts{}}
	var last *State
	for {
		state, err := p.config.Next(r.Context(), last)
		if r.Context().Err() != nil {
			return
		}
		event, data := "view", []byte(nil)
		if err != nil {
			event, data = "down", down(err)
		} else {
			data = has.change(p.view(r, name, state, has.starts))
			last = state
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server supports it
		var b bytes.Buffer
		b.WriteString("event: " + event + "\ndata: ")
		b.Write(data)
		b.WriteString("\n\n")
		if _, err := w.Write(b.Bytes()); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		if err != nil && pause.For(r.Context(), time.Second) != nil {
			return
		}
	}
}

// down describes why there is no data.
func down(err error) []byte {
	data, _ := json.Marshal(map[string]string{"text": "the database does not answer: " + why(err)}) // strings can be encoded
	return data
}

// change returns the update from the client's state to the view.
func (s *sent) change(v *view) []byte {
	u := update{Now: v.Now, Parts: map[string]string{}, Rows: map[string]string{}}
	for _, name := range v.parts() {
		if html := v.part(name); s.parts[name] != html {
			s.parts[name], u.Parts[name] = html, html
		}
	}
	if v.Rows != nil {
		rows, order := make(map[string]string, len(v.Rows)), make([]string, len(v.Rows))
		for i, row := range v.Rows {
			html := render("row", row)
			if rows[row.ID], order[i] = html, row.ID; s.rows[row.ID] != html {
				u.Rows[row.ID] = html
			}
		}
		if !equal(order, s.order) {
			u.Order, u.Empty = order, len(order) == 0
		}
		s.rows, s.order = rows, order
	}
	data, err := json.Marshal(u)
	if err != nil {
		panic("BUG: monitor: " + err.Error())
	}
	return data
}

func equal(a, b []string) bool {
	if len(a) != len(b) || b == nil {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// starts are the start times of ages, as sent to a client. Times from processes vary by
// milliseconds; such changes must not be sent again.
type starts map[string]int64

// steady returns the client's time, if it is about the same.
func (s starts) steady(id string, at int64) int64 {
	if s == nil {
		return at
	}
	if old, ok := s[id]; ok && max(old-at, at-old) < 1500 {
		return old
	}
	if len(s) > 10_000 { // of former rows
		clear(s)
	}
	s[id] = at
	return at
}
