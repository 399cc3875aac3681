package web

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
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

// live sends the changes of a view until the client leaves.
func (p *Page) live(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	name := asked.Get("view")
	kind, ok := views[name]
	if !ok {
		p.config.Refuse(w, http.StatusBadRequest, "view="+strconv.Quote(name)+": there is none")
		return
	}
	if _, problem := kind.query(asked); problem != "" {
		p.config.Refuse(w, http.StatusBadRequest, problem)
		return
	}
	p.scenes.live(w, r, address(name, asked), p.config.Next, func() func(*State) *frame {
		ages := starts{}
		return func(state *State) *frame { return p.view(context.Background(), name, asked, state, ages).frame() }
	})
}

// live sends the changes of a scene, about one event a second, until the client leaves. next returns the state after
// the one that the client has; renderer is that of enter.
func (c *scenes[S]) live(w http.ResponseWriter, r *http.Request, address string, next func(context.Context, S) (S, error), renderer func() func(S) *frame) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would buffer events
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	scene := c.enter(address, renderer)
	defer c.leave(scene)
	var last S
	var has *frame
	for {
		state, err := next(r.Context(), last)
		if r.Context().Err() != nil {
			return
		}
		var event []byte
		if err != nil {
			event = down(err)
		} else {
			shown, gone := scene.show(r.Context(), state)
			if gone != nil {
				return
			}
			event, has, last = shown.frame.since(has), shown.frame, shown.state
		}
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server supports it
		if _, err := w.Write(event); err != nil {
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
	return message("down", data)
}

// message returns an event of a stream.
func message(name string, data []byte) []byte {
	return slices.Concat([]byte("event: "+name+"\ndata: "), data, []byte("\n\n"))
}

// starts are the start times of ages, as sent to clients. Times from processes vary by
// milliseconds; such changes must not be sent again.
type starts map[string]int64

// steady returns the clients' time, if it is about the same.
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
