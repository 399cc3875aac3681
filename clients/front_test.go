package clients_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
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
	batches   atomic.Int64

	stuck atomic.Pointer[string] // requests about this lock are taken, and never reach the server
	batch atomic.Pointer[func(body []byte, ask func([]byte) []byte) wrong]
}

// A wrong answer is given instead of the server's; the zero value is the server's.
type wrong struct {
	status int
	media  string
	text   string
}

// problem returns a refusal.
func problem(status int, kind string) wrong {
	return wrong{status, "application/problem+json", `{"type": "https://github.com/pglatch/pglatch/problems/` + kind + `", "title": "` + kind + `", "status": ` + strconv.Itoa(status) + `}`}
}

func (a wrong) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", a.media)
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.text)
}

func newFront(t *testing.T, target string) *front {
	t.Helper()
	f := &front{target: target}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	t.Cleanup(f.CloseClientConnections) // first: a silent one would keep Close
	return f
}

// serveBehindFront starts a lock server on a SQLite file, and a front for it.
func serveBehindFront(t *testing.T) (*server, *front) {
	t.Helper()
	s := serve(t, "")
	return s, newFront(t, s.url())
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := f.requests.Add(1)
	body, err := io.ReadAll(r.Body)
	if strings.HasSuffix(r.URL.Path, "/release") {
		f.releases.Add(1)
	}
	if f.silent.Load() || f.concerns(r.URL.Path, body) {
		<-r.Context().Done()
	}
	if f.narrow.Load() {
		problem(http.StatusUnprocessableEntity, "out-of-range").write(w)
		return
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path == "/v1/batch" {
		f.batches.Add(1)
		if handle := f.batch.Load(); handle != nil {
			ask := func(body []byte) []byte {
				return f.ask(r, body).text
			}
			if a := (*handle)(body, ask); a.status != 0 {
				a.write(w)
				return
			}
		}
	}
	answer := f.ask(r, body)
	every, path := f.loseEvery.Load(), f.lose.Load()
	lost := every > 0 && n%every == 0
	if path != nil && strings.HasSuffix(r.URL.Path, *path) && f.lose.CompareAndSwap(path, nil) {
		lost = true
	}
	if answer.err != nil || lost {
		f.narrow.Store(f.narrows.Load())
		panic(http.ErrAbortHandler) // the connection is cut
	}
	for _, name := range []string{"Content-Type", "Pglatch-Request-Id"} {
		w.Header().Set(name, answer.header.Get(name))
	}
	if f.mixedUp.Load() {
		w.Header().Set("Pglatch-Request-Id", "another")
	}
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.text)
}

// An answer is what the server said; err is that of reading its text.
type answer struct {
	status int
	header http.Header
	text   []byte
	err    error
}

// ask forwards a request to the server, with another body.
func (f *front) ask(r *http.Request, body []byte) answer {
	onward, _ := http.NewRequestWithContext(r.Context(), r.Method, f.target+r.URL.RequestURI(), bytes.NewReader(body))
	onward.Header = r.Header.Clone()
	response, err := http.DefaultTransport.RoundTrip(onward)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, text, err}
}

// concerns reports whether a request is about the lock that is stuck.
func (f *front) concerns(path string, body []byte) bool {
	lock := f.stuck.Load()
	return lock != nil && (strings.Contains(path, "/"+*lock+"/") || bytes.Contains(body, []byte(`"`+*lock+`"`)))
}

// onBatch has a function answer batches; ask gets the server's answer to a body.
func (f *front) onBatch(handle func(body []byte, ask func([]byte) []byte) wrong) {
	f.batch.Store(&handle)
}

// loseNext loses the next answer to a verb.
func (f *front) loseNext(verb string) {
	path := "/" + verb
	f.lose.Store(&path)
}
