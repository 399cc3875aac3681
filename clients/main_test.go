// Package clients_test tests the clients of lock servers in other languages, against real servers,
// by the history checker of the Go client.
package clients_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

func TestMain(m *testing.M) { clitest.MainOf(m, "../cmd/pglatch") }

// A language has a client and a worker that uses it.
type language struct{ name, program, worker string }

var languages = []language{
	{"python", "python3", "testdata/worker.py"},
	{"typescript", "node", "testdata/worker.mjs"},
}

// inEach runs a test with the client of each language. Where its program is missing, that is a
// failure in CI.
func inEach(t *testing.T, test func(t *testing.T, l language)) {
	t.Helper()
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			need(t, l.program)
			test(t, l)
		})
	}
}

func need(t *testing.T, program string) {
	t.Helper()
	notrun.Program(t, "no program "+program, program)
}

// A setup is what a worker is told to be.
type setup struct {
	Bases   []string `json:"bases"`
	Token   string   `json:"token"`
	Timeout int      `json:"timeout"` // like all times in milliseconds
	TTL     int      `json:"ttl"`
	Margin  int      `json:"margin"`  // 0 = the default
	Control string   `json:"control"` // what it does wrong
	Load    string   `json:"load"`    // "" = it obeys; else the name of its owner
	Share   *share   `json:"share"`   // of the load; nil = leases of its own
}

// A share is what a load asks for, of one lock.
type share struct {
	Slots int    `json:"slots"`
	Mode  string `json:"mode"` // "" without slots = any
}

// A worker is a process that uses a client.
type worker struct {
	*proctest.Process
	t *testing.T
}

// start starts a worker, which is killed at the end of the test.
func (l language) start(t *testing.T, s setup) *worker {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	program := l.program
	if program == "python3" {
		program = python()
	}
	return &worker{proctest.Start(t, proctest.Command(t, program, l.worker, string(text))), t}
}

// python is the program that python3 runs: a shim of a manager of versions takes longer than Python itself.
var python = sync.OnceValue(func() string {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return "python3"
	}
	return strings.TrimSpace(string(path))
})

// client starts a worker that obeys, with a TTL that no test reaches.
func (l language) client(t *testing.T, base string) *worker {
	t.Helper()
	return l.start(t, setup{Bases: []string{base}, Timeout: 10_000, TTL: 600_000})
}

// kill ends the process, with what it does, and returns all lines it has written that nobody read.
func (w *worker) kill() []string {
	w.Kill()
	return slices.Collect(w.Lines())
}

// A command is what a worker that obeys does; the lease, and its owner, is called As. Of many, each lease is called as its
// lock.
type command struct {
	Do    string   `json:"do"`
	As    string   `json:"as"`
	Name  string   `json:"name"`
	Wait  int      `json:"wait"` // for the lock; of a heartbeat: its interval
	Slots int      `json:"slots,omitempty"`
	Mode  string   `json:"mode,omitempty"`
	Owner string   `json:"owner,omitempty"` // to adopt
	ID    string   `json:"id,omitempty"`
	Names []string `json:"names"` // of many
}

// A reply is what came of it: the lease, or the name of an error. Of many, it is the results.
type reply struct {
	Token     string  `json:"token"`
	ID        string  `json:"id"`
	Remaining int     `json:"remaining"`
	Error     string  `json:"error"`
	Owner     string  `json:"owner"`
	Name      string  `json:"name"`
	ShareOf   string  `json:"share_of"`
	Slot      int     `json:"slot"`
	Fence     string  `json:"fence"`
	Results   []reply `json:"results"`
}

func (w *worker) do(c command) (r reply) {
	w.t.Helper()
	w.send(c)
	return w.answer()
}

func (w *worker) send(c command) {
	w.t.Helper()
	text, err := json.Marshal(c)
	require.NoError(w.t, err)
	w.Tell(string(text))
}

func (w *worker) answer() (r reply) {
	w.t.Helper()
	line := w.Line()
	require.NoError(w.t, json.Unmarshal([]byte(line), &r), line)
	return r
}

// A server is a lock server that is killed and started again.
type server struct {
	t       *testing.T
	address string
	args    []string
	program *clitest.Program
}

// serve starts a lock server on a store, a SQLite file if it is empty.
func serve(t *testing.T, store string, args ...string) *server {
	t.Helper()
	if store == "" {
		store = "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	}
	s := &server{t: t, address: clitest.Reserve(t)}
	s.args = append([]string{"serve", "locks", "--listen", s.address, "--store", store}, args...)
	s.start()
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.program = clitest.Start(s.t, nil, s.args...)
	s.program.Saying(&s.program.Stderr, "msg=serving")
}

// bounce kills the server and starts it again.
func (s *server) bounce() {
	s.t.Helper()
	s.program.Signal(syscall.SIGKILL)
	s.program.Wait()
	s.start()
}

func (s *server) url() string { return "http://" + s.address }

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
