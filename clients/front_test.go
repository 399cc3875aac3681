package clients_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A front stands between clients and a server, and loses answers.
type front struct {
	*httptest.Server
	target string

	loseEvery atomic.Int64           // one answer in so many is lost; 0 = none
	lose      atomic.Pointer[string] // the next answer to a path with this end is lost
	silent    atomic.Bool            // requests are taken, and never reach the server
	mixedUp   atomic.Bool            // answers bear the id of another request
	narrow    atomic.Bool            // requests are refused, as by a TTL policy
	narrows   atomic.Bool            // they are from the next lost answer on
	requests  atomic.Int64
	releases  atomic.Int64
}

func newFront(t *testing.T, target string) *front {
	t.Helper()
	f := &front{target: target}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	t.Cleanup(f.CloseClientConnections) // first: a silent one would keep Close
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := f.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	if strings.HasSuffix(r.URL.Path, "/release") {
		f.releases.Add(1)
	}
	if f.silent.Load() {
		<-r.Context().Done()
	}
	if f.narrow.Load() {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"type": "https://github.com/pglatch/pglatch/problems/out-of-range", "title": "Value out of range"}`)
		return
	}
	onward, _ := http.NewRequestWithContext(r.Context(), r.Method, f.target+r.URL.RequestURI(), bytes.NewReader(body))
	onward.Header = r.Header.Clone()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	answer, err := http.DefaultTransport.RoundTrip(onward)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	every, path := f.loseEvery.Load(), f.lose.Load()
	lost := every > 0 && n%every == 0
	if path != nil && strings.HasSuffix(r.URL.Path, *path) && f.lose.CompareAndSwap(path, nil) {
		lost = true
	}
	if err != nil || lost {
		f.narrow.Store(f.narrows.Load())
		panic(http.ErrAbortHandler) // the connection is cut
	}
	for _, name := range []string{"Content-Type", "Pglatch-Request-Id"} {
		w.Header().Set(name, answer.Header.Get(name))
	}
	if f.mixedUp.Load() {
		w.Header().Set("Pglatch-Request-Id", "another")
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(text)
}

// loseNext loses the next answer to a verb.
func (f *front) loseNext(verb string) {
	path := "/" + verb
	f.lose.Store(&path)
}
