// Package clients_test tests the clients of lock servers in other languages, against real servers,
// by the history checker of the Go client.
package clients_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
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
	return &worker{proctest.Start(t, proctest.Command(t, l.program, l.worker, string(text))), t}
}

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
