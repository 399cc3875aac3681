//go:build !race

package locktable

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mutant is a fault in the table, and the small scenario whose exploration finds it.
type mutant struct {
	name     string
	file     string
	old, new string // the old text is in the file once
	found    string // by this scenario
}

var mutants = []mutant{
	{
		"a writer joins readers", "key.go",
		"return k.phase == Held && (mode == Exclusive || k.mode == Exclusive)", "return k.phase == Held && k.mode == Exclusive",
		"readers, writer",
	}, {
		"a reader joins past a writer of another process", "grant.go",
		"case k.gate != gateOpen:", "case k.gate == gateAsked:",
		"two shared, aged",
	}, {
		"the answer about the turnstile wakes nobody", "grant.go",
		"\t}\n\tk.advance()\n}\n\n// pollPause", "\t}\n}\n\n// pollPause",
		"reader and try",
	}, {
		"a shut turnstile is not looked at again", "grant.go",
		"k.gate = gateShut\n\t\tk.reopen()", "k.gate = gateShut",
		"two shared, aged",
	}, {
		"the turnstile is kept by the one that got the lock", "wait.go",
		"n.waiter = nil\n\t\tk.leaveTurnstile(n)\n\t\tif k.pool", "n.waiter = nil\n\t\tif k.pool",
		"two exclusive",
	}, {
		"a wait ends without the turnstile's return", "wait.go",
		"if k.hasTurnstile { // a try on another", "if k.hasTurnstile && k.pool { // a try on another",
		"two exclusive",
	}, {
		"a waiter in another mode keeps its turnstile", "wait.go",
		"case k.hasTurnstile && k.mode != r.Mode:", "case k.hasTurnstile && k.mode != r.Mode && k.pool:",
		"both modes",
	}, {
		"a waiter that yields keeps its turnstile", "wait.go",
		"n.waiter = nil\n\tif k.hasTurnstile {\n\t\tk.leaveTurnstile(n)\n\t}", "n.waiter = nil",
		"two keys",
	}, {
		"the last of several holders gives back for each", "holder.go",
		"return len(k.holders) == 0", "return true",
		"all, shared",
	}, {
		"the last holder does not give back", "holder.go",
		"return len(k.holders) == 0", "return false",
		"two exclusive",
	}, {
		"a lock stays on a connection that ended", "key.go",
		"k.phase, k.hasTurnstile, k.tried = Free, false, nil\n\tk.move(nil)", "k.phase, k.hasTurnstile, k.tried = Free, false, nil",
		"two exclusive",
	}, {
		"a slot that is tried is asked for as a mutex too", "key.go",
		"if t.triedAsSlot(k) {", "if false && t.triedAsSlot(k) {",
		"slot and its mutex",
	}, {
		"the pause has no timer", "key.go",
		"k.table.do(Command{Kind: Pause,", "_ = (Command{Kind: Pause,",
		"slot and its mutex",
	}, {
		"a pause that ends starts nothing", "key.go",
		"k.phase = Free\n\t\tk.advance()\n\t}\n}\n\n// failAll", "k.phase = Free\n\t}\n}\n\n// failAll",
		"slot and its mutex",
	}, {
		"a lost holder of several keys is given a further one", "holder.go",
		"r == nil || r.phase != queued || !r.inQueue.in {", "r == nil || r.phase != fresh {",
		"all, dedicated",
	}, {
		"a holder of several keys is Active before its last", "grant.go",
		"case !r.Part:", "case !r.Part || h.own == nil || k.conn.locks == 1:",
		"all, dedicated",
	}, {
		"a lock passes on although its session is in doubt", "grant.go",
		">= t.limits.HandOverBudget || !k.conn.fresh(t.now)", ">= t.limits.HandOverBudget",
		"two exclusive",
	}, {
		"a lock passes on to a reader as it is", "grant.go",
		"k.mode != Exclusive || r.Mode != Exclusive ||", "k.mode != Exclusive ||",
		"both modes",
	}, {
		"holders are lost without being told", "holder.go",
		"holders = append(holders, h)", "_ = h",
		"two exclusive",
	}, {
		"a holder is told twice of its loss", "holder.go",
		"if h.phase == Released || h.phase == Lost {\n\t\treturn false\n\t}\n\ttold = h.phase == Active", "told = true",
		"all, dedicated",
	}, {
		"a connection that is closed makes no room", "holder.go",
		"t.remove(n)\n\tt.serve()", "t.remove(n)",
		"two keys, dedicated",
	}, {
		"a connection that is lost while nobody uses it is not closed", "holder.go",
		"if !used {", "if !used && len(holders) > 0 {",
		"two exclusive",
	}, {
		"a loss wakes nobody that waits", "holder.go",
		"if k.table != nil {", "if k.table == nil {",
		"two exclusive",
	}, {
		"operations that were not sent are forgotten when their connection ends", "holder.go",
		"for _, o := range pending {\n\t\to.fail(lost)\n\t}", "_ = pending",
		"two exclusive",
	}, {
		"a connection that cannot be made fails nobody", "conn.go",
		"k.move(nil)\n\t\tk.failAll(cause)\n\t\tk.advance()", "k.move(nil)",
		"two exclusive",
	}, {
		"a circle of waits is not seen", "request.go",
		"err = t.deadlock(r)", "_ = t.deadlock(r)",
		"nested",
	}, {
		"a caller waits for itself", "request.go",
		"if err := t.reentrant(r); err != nil {", "if err := t.reentrant(r); err != nil && r.Try {",
		"reentrant",
	}, {
		"a release is over with the first of its answers", "request.go",
		"if r.left--; r.left == 0 {", "if r.left--; r.left >= 0 {",
		"all, shared",
	}, {
		"a withdrawn request stays in its queue", "request.go",
		"first := k.requests.peek() == r\n\tk.leaveQueue(r)", "first := k.requests.peek() == r",
		"two exclusive",
	}, {
		"a withdrawal leaves what was begun for it", "request.go",
		"case next == nil:\n\t\tk.abandon()", "case next == nil:",
		"two exclusive",
	}, {
		"a connection with locks is given back", "conn.go",
		"case n.locks > 0:\n\t\treturn Guard", "case n.locks > 1:\n\t\treturn Guard",
		"two exclusive",
	}, {
		"a lock that nobody wants any more is kept", "grant.go",
		"if r == nil || r.Mode != k.mode || k.table.closed != nil {\n\t\tk.giveBack(nil)", "if r == nil || r.Mode != k.mode || k.table.closed != nil {",
		"two exclusive",
	}, {
		"a lock is granted in the mode of a request that left", "grant.go",
		"if r == nil || r.Mode != k.mode || k.table", "if r == nil || k.table",
		"both modes",
	}, {
		"a slot that nobody wants any more is kept", "grant.go",
		"if !wanted {\n\t\tslot.giveBack(nil)", "if !wanted {",
		"slots",
	}, {
		"a refusal does not reach the tries behind the first", "key.go",
		"if reason == nil {\n\t\tk.refuseTries()", "if reason == nil {",
		"one connection",
	}, {
		"what became pending is not driven", "conn.go",
		"case len(n.pending) > 0:\n\t\tn.phase = Busy\n\t\tt.do(Command{Kind: Drive, Conn: n})", "case len(n.pending) > 0:\n\t\tn.phase = Busy",
		"two exclusive",
	}, {
		"room on a connection serves nobody", "conn.go",
		"|| n.inRoom.in && t.starved.peek() != nil {\n\t\tt.serve()\n\t}", "{\n\t}",
		"two keys, dedicated",
	}, {
		"a polled lock is asked for without leaving the list", "wait.go",
		"k.polls++\n\t\tt.polled.remove(&k.inQueue)", "k.polls++",
		"two exclusive",
	}, {
		"polls end after one", "wait.go",
		"k.noRoom(err)\n\t\t}\n\t}\n\tt.do(Command{Kind: Poll, Delay: pollPause})", "k.noRoom(err)\n\t\t}\n\t}",
		"two exclusive",
	}, {
		"a try is sent twice", "batch.go",
		"rest := copy(n.pending, n.pending[count:])", "rest := copy(n.pending, n.pending[count-1:])",
		"two exclusive",
	}, {
		"Close leaves those that wait", "table.go",
		"k.failAll(cause)\n", "",
		"both modes, closed",
	}, {
		"Close leaves the connections", "table.go",
		"t.end(n, cause)\n", "_ = n\n",
		"both modes, closed",
	},
}

// helpers are the test files that an exploration needs.
var helpers = []string{"world", "events", "invariants", "snapshot", "canonical", "explore", "scenarios"}

// modulePath is the import path of this package.
const modulePath = "github.com/pglatch/pglatch/internal/locktable"

// One program has all mutants: each is a copy of this package under a path of its own, which only an overlay of the compiler knows. It is built
// without the race detector, because an exploration has one goroutine; so this test is only in the run without it, which make test has too.
func TestEachMutantIsFoundAndTheTableItselfPasses(t *testing.T) {
	t.Parallel()
	o := newOverlay(t)
	var used []string
	o.add("original", mutant{})
	for i, m := range mutants {
		o.add(fmt.Sprint("mutant", i), m)
		o.search(fmt.Sprint("mutant", i), m.found)
		if !slices.Contains(used, m.found) {
			used = append(used, m.found)
		}
	}
	for _, name := range used {
		o.search("original", name)
	}
	results := o.run()
	require.Len(t, results, len(mutants)+len(used))
	for i, m := range mutants {
		assert.NotEmptyf(t, results[i].Problem, "%q does not find that %s", m.found, m.name)
		t.Logf("%s: found in %d ms by %q: %.50q", m.name, results[i].Milliseconds, m.found, results[i].Problem)
	}
	for i, name := range used {
		assert.Emptyf(t, results[len(mutants)+i].Problem, "%q finds something in the table itself", name)
	}
}

// An overlay is a set of files that the compiler takes for files of this module, and the program that they make.
type overlay struct {
	t       *testing.T
	dir     string // of what is written
	here    string
	replace map[string]string
	imports []string
	calls   []string
}

func newOverlay(t *testing.T) *overlay {
	t.Helper()
	here, err := filepath.Abs(".")
	require.NoError(t, err)
	return &overlay{t: t, dir: t.TempDir(), here: here, replace: make(map[string]string)}
}

// add makes a package of the table with a fault.
func (o *overlay) add(name string, m mutant) {
	o.imports = append(o.imports, fmt.Sprintf("%s %q", name, modulePath+"/mutants/"+name))
	files, err := filepath.Glob("*.go")
	require.NoError(o.t, err)
	for _, file := range files {
		stem, test := strings.CutSuffix(file, "_test.go")
		if test && !slices.Contains(helpers, stem) {
			continue
		}
		source := filepath.Join(o.here, file)
		if file == m.file {
			source = o.mutate(name, m)
		}
		if test {
			file = "explored_" + stem + ".go"
		}
		o.replace[filepath.Join(o.here, "mutants", name, file)] = source
	}
}

// mutate writes the source with the fault.
func (o *overlay) mutate(name string, m mutant) string {
	text, err := os.ReadFile(m.file)
	require.NoError(o.t, err)
	require.Equalf(o.t, 1, strings.Count(string(text), m.old), "%s: the old text is in %s once", m.name, m.file)
	return o.write(name+".go", strings.Replace(string(text), m.old, m.new, 1))
}

func (o *overlay) write(name, text string) string {
	file := filepath.Join(o.dir, name)
	require.NoError(o.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// search has the program explore a scenario with a package.
func (o *overlay) search(name, scenario string) {
	o.calls = append(o.calls, fmt.Sprintf("func() string { return %s.Search(%q) },", name, scenario))
}

// A result is that of one search.
type result struct {
	Problem      string
	Milliseconds int
}

// searchProgram does all searches, as many at once as there are processors.
const searchProgram = `package main

import (
	"encoding/json"
	"os"
	"runtime"
	"sync"
	"time"

	IMPORTS
)

var searches = []func() string{
	CALLS
}

type result struct {
	Problem      string
	Milliseconds int
}

func main() {
	results := make([]result, len(searches))
	var all sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, search := range searches {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			began, done := time.Now(), make(chan string, 1)
			go func() { done <- search() }()
			select {
			case problem := <-done:
				results[i] = result{problem, int(time.Since(began).Milliseconds())}
			case <-time.After(10 * time.Second):
				results[i] = result{"", -1} // it goes on for ever
			}
		})
	}
	all.Wait()
	json.NewEncoder(os.Stdout).Encode(results)
}
`

// run builds the program and returns its results.
func (o *overlay) run() (results []result) {
	t := o.t
	text := strings.NewReplacer("IMPORTS", strings.Join(o.imports, "\n\t"), "CALLS", strings.Join(o.calls, "\n\t")).Replace(searchProgram)
	o.replace[filepath.Join(o.here, "mutants", "main.go")] = o.write("main.go", text)
	replace, err := json.Marshal(map[string]any{"Replace": o.replace})
	require.NoError(t, err)
	program := filepath.Join(o.dir, "search")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", o.write("overlay.json", string(replace)), "-o", program, modulePath+"/mutants")
	output, err := build.CombinedOutput()
	require.NoErrorf(t, err, "%s", output)
	output, err = exec.CommandContext(t.Context(), program).Output()
	require.NoErrorf(t, err, "%s", output)
	require.NoError(t, json.Unmarshal(output, &results))
	return results
}
