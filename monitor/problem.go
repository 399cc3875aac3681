package monitor

import (
	"net/http"
	"time"

	"github.com/pglatch/pglatch/internal/problem"
)

// A refusal is a problem of RFC 9457 of the type about:blank: its title is the text of the status.
type refusal struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func refuse(w http.ResponseWriter, status int, retry time.Duration, detail string) {
	problem.Write(w, status, retry, refusal{Title: http.StatusText(status), Status: status, Detail: detail})
}
