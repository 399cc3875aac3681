// Package problem writes refusals of HTTP requests.
package problem

import (
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"
)

const (
	// MediaType is that of RFC 9457.
	MediaType = "application/problem+json"
	// TypeBase begins the types of problems that have one of their own: identifiers to
	// compare, not pages to fetch.
	TypeBase = "https://github.com/pglatch/pglatch/problems/"
)

// Header returns the header of a problem: nobody may keep it. retry is when trying again
// can help, rounded up to whole seconds; 0 = it does not help.
func Header(retry time.Duration) http.Header {
	h := http.Header{
		"Content-Type":           {MediaType},
		"Cache-Control":          {"no-store"},
		"X-Content-Type-Options": {"nosniff"},
	}
	if retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((retry+time.Second-1)/time.Second), 10))
	}
	return h
}

// Write answers with a problem: its Header, and body, which is its members. Headers that
// described another body are removed.
func Write(w http.ResponseWriter, status int, retry time.Duration, body any) {
	h := w.Header()
	for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	maps.Copy(h, Header(retry))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // it fails only with the connection
}
