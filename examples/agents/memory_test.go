package agents

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/pglatch/pglatch/internal/test/dbtest"
)

// The locks in memory that guarded an agent's state (progress capture, reconciling, hand-off)
// are gone. Those for state that lives in one process remain, and work while the agent's lock
// is held.
func TestScenario_ExistingInMemoryLocksRetained(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var found []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if file != "memory.go" && !strings.HasSuffix(file, "_test.go") {
			assert.NotRegexp(t, `sync\.(Mutex|RWMutex|Map|Once|Cond)|atomic\.`, string(source), file)
		}
	}
	source, err := os.ReadFile("memory.go")
	require.NoError(t, err)
	for _, match := range regexp.MustCompile(`(?m)^type (\w+).* struct \{\n\tmu +sync\.Mutex`).FindAllSubmatch(source, -1) {
		found = append(found, string(match[1]))
	}
	assert.Equal(t, []string{"broadcaster", "memo", "tokenStore"}, found, "memo is the session registry and the inference cache; a rate.Limiter has its own")

	_, a, _ := pair(t, Config{})
	defer a.hold(1)()
	limiter := rate.NewLimiter(rate.Every(time.Hour), 10)
	var allowed, received atomic.Int32
	var sessions sessionRegistry
	var cache inferenceCache
	var tokens tokenStore
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			events, leave := a.broadcaster.subscribe()
			defer leave()
			if limiter.Allow() {
				allowed.Add(1)
			}
			sessions.add("x", 1)
			id, _ := sessions.find("x")
			assert.EqualValues(t, 1, id)
			cache.add("text", "summary")
			summary, _ := cache.find("text")
			assert.Equal(t, "summary", summary)
			assert.NoError(t, tokens.replace([]string{firstToken}))
			known, _ := tokens.known(firstToken)
			assert.True(t, known)
			a.broadcaster.publish(event{agentID: 1})
			if e := <-events; e.agentID == 1 {
				received.Add(1)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 10, allowed.Load())
	assert.EqualValues(t, 50, received.Load())
	assert.Empty(t, a.broadcaster.clients)
	assert.Equal(t, 1, a.locker.Stats().Held)
}

const firstToken, secondToken = "first-0123456789", "second-012345678"

// routes has one route of each kind.
var routes = map[string]string{"/api/advisory-locks": http.MethodGet, "/hook/status": http.MethodGet, "/hook/session-start": http.MethodPost}

// answers asserts the status of each kind of route.
func (r *replica) answers(status int, headers ...string) {
	r.t.Helper()
	for path, method := range routes {
		assert.Equal(r.t, status, r.do(method, path, Hook{SessionID: "s"}, headers...).Status, "%s %q", path, headers)
	}
}

func TestWithTokensEveryRequestNeedsOneAndTheyAreReplacedWhileTheProgramRuns(t *testing.T) {
	t.Parallel()
	a := start(t, dbtest.New(t), Config{Tokens: []string{firstToken, secondToken}})
	a.answers(http.StatusUnauthorized)
	for _, wrong := range []string{"Bearer ", "Bearer " + firstToken + "x", firstToken, "Basic " + firstToken} {
		a.answers(http.StatusUnauthorized, "Authorization: "+wrong)
	}
	for _, token := range []string{firstToken, secondToken} {
		a.answers(http.StatusOK, "Authorization: Bearer "+token)
		a.answers(http.StatusOK, "Authorization: bearer "+token, "Host: locks.example", "X-Forwarded-For: 10.0.0.1")
	}
	for _, wrong := range [][]string{nil, {"short"}} {
		require.Error(t, a.ReplaceTokens(wrong))
		a.answers(http.StatusOK, "Authorization: Bearer "+firstToken) // nothing changes
		a.answers(http.StatusUnauthorized)
	}
	require.NoError(t, a.ReplaceTokens([]string{secondToken}))
	a.answers(http.StatusUnauthorized, "Authorization: Bearer "+firstToken)
	a.answers(http.StatusOK, "Authorization: Bearer "+secondToken)
}

func TestWithoutTokensOnlyThisHostIsAnswered(t *testing.T) {
	t.Parallel()
	a := start(t, dbtest.New(t), Config{})
	a.answers(http.StatusOK)
	a.answers(http.StatusForbidden, "X-Forwarded-For: 10.0.0.1")
	a.answers(http.StatusForbidden, "Host: rebound.example")

	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/hook/status", nil)
	for from, want := range map[string]int{"10.0.0.1:1": http.StatusForbidden, "127.0.0.1:1": http.StatusOK} {
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, from)
	}
}

func content(t *testing.T, path string) (config map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &config))
	return config
}

// Three editors save at once, across two renames.
func TestScenario_ConcurrentConfigSaves(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{}`), 0o600))
	before, err := os.Open(path) // kept open, so that no new file reuses its inode
	require.NoError(t, err)
	defer before.Close()
	old, err := before.Stat()
	require.NoError(t, err)

	var found []map[string]any
	inside, proceed := make(chan bool), make(chan bool)
	save := func(name string) {
		_, err := configEditor(path).edit(func(config map[string]any) {
			if name == "first" {
				inside <- true
				<-proceed
			}
			found = append(found, maps.Clone(config)) // guarded by the file lock
			config[name] = true
		})
		assert.NoError(t, err)
	}
	var all sync.WaitGroup
	all.Go(func() { save("first") })
	<-inside
	lock, err := os.Stat(path + ".lock")
	require.NoError(t, err)
	all.Go(func() { save("second") })
	all.Go(func() { save("third") })
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond) // enough time for a save that does not wait
	defer stop()
	<-waiting.Done()
	assert.Empty(t, found, "nobody reads while the first one works")
	close(proceed)
	all.Wait()
	require.Len(t, found, 3)
	assert.Equal(t, map[string]any{"first": true}, found[1], "the next one reads what the first wrote")
	assert.Len(t, found[2], 2, "and the last one what both wrote")
	assert.Equal(t, map[string]any{"first": true, "second": true, "third": true}, content(t, path))

	now, err := os.Stat(path)
	require.NoError(t, err)
	assert.False(t, os.SameFile(old, now), "the file was renamed over")
	now, err = os.Stat(path + ".lock")
	require.NoError(t, err)
	assert.True(t, os.SameFile(lock, now), "the lock's file never is")
	rest, err := filepath.Glob(path + ".*")
	require.NoError(t, err)
	assert.Equal(t, []string{path + ".lock"}, rest, "no temporary file is left")
}

// The control: three writers, with the lock on the file that they rename.
func TestALockOnTheRenamedFileItselfLosesAnUpdate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{}`), 0o600))
	open := func() *os.File {
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	try := func(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	save := func(config map[string]any, name string) {
		config[name] = true
		require.NoError(t, configEditor(path).write(config))
	}
	a, b := open(), open()
	require.NoError(t, try(a))
	require.ErrorIs(t, try(b), syscall.EWOULDBLOCK, "b waits for a")
	save(content(t, path), "a")
	require.NoError(t, a.Close())
	c := open()
	require.NoError(t, try(b), "b has locked a file that has no name any more")
	require.NoError(t, try(c), "and c the one that has it: two holders")
	ofB, ofC := content(t, path), content(t, path)
	save(ofB, "b")
	save(ofC, "c")
	assert.Equal(t, map[string]any{"a": true, "c": true}, content(t, path), "b's update is lost")
}

func TestTheConfigIsMergedOverHTTPAndAFileThatIsNoConfigIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"keep": 1, "drop": 2, "deep": {"keep": 3, "drop": 4}}`), 0o600))
	a := start(t, dbtest.New(t), Config{ConfigPath: path})
	x := a.do(http.MethodPatch, "/api/config", map[string]any{
		"drop": nil, "new": "x", "deep": map[string]any{"drop": nil, "new": map[string]any{"y": true, "no": nil}},
	})
	require.Equal(t, http.StatusOK, x.Status, x.Body)
	assert.JSONEq(t, `{"keep": 1, "new": "x", "deep": {"keep": 3, "new": {"y": true}}}`, x.Body)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.JSONEq(t, x.Body, string(text))
	assert.Equal(t, http.StatusBadRequest, a.do(http.MethodPatch, "/api/config", []int{1}).Status)

	for _, broken := range []string{`{"half`, `null`} {
		require.NoError(t, os.WriteFile(path, []byte(broken), 0o600))
		assert.Equal(t, http.StatusInternalServerError, a.do(http.MethodPatch, "/api/config", map[string]any{"a": 1}).Status)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, broken, string(text))
	}
}
