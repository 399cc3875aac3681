package monitor

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/pglatch/pglatch/internal/problem"
)

// A refusal is a problem of RFC 9457 whose type is about:blank: its title is that of the
// status.
type refusal struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func refuse(w http.ResponseWriter, status int, retry time.Duration, detail string) {
	problem.Write(w, status, retry, refusal{Title: http.StatusText(status), Status: status, Detail: detail})
}

func writeJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("BUG: monitor: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may have gone
}
