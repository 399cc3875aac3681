package agents_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// writers saves from several editors at once, which all queue up while the first holds the
// lock, and returns the file as each found it.
func writers(t *testing.T, path string, names ...string) (found map[string]map[string]any) {
	t.Helper()
	found = make(map[string]map[string]any)
	var order []string
	inside, proceed := make(chan struct{}), make(chan struct{})
	save := func(name string, wait bool) {
		_, err := agents.NewConfigEditor(path).Edit(func(config map[string]any) error {
			if wait {
				close(inside)
				<-proceed
			}
			order = append(order, name) // guarded by the file lock
			found[name] = maps.Clone(config)
			config[name] = true
			return nil
		})
		assert.NoError(t, err)
	}
	var all sync.WaitGroup
	all.Go(func() { save(names[0], true) })
	<-inside
	for _, name := range names[1:] {
		all.Go(func() { save(name, false) })
	}
	select { // enough time for a save that does not wait
	case <-t.Context().Done():
	case <-time.After(50 * time.Millisecond):
	}
	assert.Empty(t, order, "nobody reads while the first one works")
	close(proceed)
	all.Wait()
	assert.Len(t, order, len(names))
	for i, name := range order {
		assert.Len(t, found[name], i, "each sees the saves before its own")
	}
	return found
}

func content(t *testing.T, path string) (config map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &config))
	return config
}

func TestScenario_ConcurrentConfigSaves(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	found := writers(t, path, "first", "second")
	assert.Equal(t, map[string]any{"first": true}, found["second"], "the second reads what the first wrote")
	assert.Equal(t, map[string]any{"first": true, "second": true}, content(t, path))
}

func TestThreeWritersAcrossTwoRenamesLoseNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	editor := agents.NewConfigEditor(path)
	_, err := editor.Merge(nil)
	require.NoError(t, err)
	before, err := os.Open(path) // kept open, so that no new file reuses its inode
	require.NoError(t, err)
	defer before.Close()
	file, err := before.Stat()
	require.NoError(t, err)
	lock, err := os.Stat(path + ".lock")
	require.NoError(t, err)

	writers(t, path, "a", "b", "c")
	assert.Equal(t, map[string]any{"a": true, "b": true, "c": true}, content(t, path))

	now, err := os.Stat(path)
	require.NoError(t, err)
	assert.False(t, os.SameFile(file, now), "the file was renamed over")
	now, err = os.Stat(path + ".lock")
	require.NoError(t, err)
	assert.True(t, os.SameFile(lock, now), "the lock's file never is")
	rest, err := filepath.Glob(path + ".*")
	require.NoError(t, err)
	assert.Equal(t, []string{path + ".lock"}, rest, "no temporary file is left")
}

// The control: the same three writers, with the lock on the file that they rename.
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
		text, err := json.Marshal(config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path+".new", text, 0o600))
		require.NoError(t, os.Rename(path+".new", path))
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

func TestTheConfigIsMergedOverHTTP(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"keep": 1, "drop": 2, "deep": {"keep": 3, "drop": 4}}`), 0o600))
	a := start(t, agents.Config{DSN: pgtest.DSN(t), ConfigPath: path})
	x := a.do(http.MethodPatch, "/api/config", map[string]any{
		"drop": nil, "new": "x", "deep": map[string]any{"drop": nil, "new": map[string]any{"y": true, "no": nil}},
	})
	require.Equal(t, http.StatusOK, x.status, x.body)
	assert.JSONEq(t, `{"keep": 1, "new": "x", "deep": {"keep": 3, "new": {"y": true}}}`, x.body)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.JSONEq(t, x.body, string(text))

	x = a.do(http.MethodPatch, "/api/config", []int{1})
	assert.Equal(t, http.StatusBadRequest, x.status, x.body)
}

func TestAFileThatIsNoConfigIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"half`), 0o600))
	_, err := agents.NewConfigEditor(path).Merge(map[string]any{"a": 1})
	require.ErrorContains(t, err, path)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, `{"half`, string(text))
}
