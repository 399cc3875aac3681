package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/notrun"
)

const program = `package p

import ("os"; "testing")

func TestPasses(t *testing.T) { t.Log("hidden") }

func TestRunsBesideARace(t *testing.T) { t.Log("WARNING: DATA RACE") }

func TestFails(t *testing.T) { t.Parallel(); t.Run("inner", func(t *testing.T) { t.Error("the reason") }) }

func TestLacksSomething(t *testing.T) { t.Skip("NOT RUN: something is missing") }

func TestIsSkipped(t *testing.T) { t.Skip("by choice") }

func TestWaits(t *testing.T) {
	for {
		if _, err := os.Stat(os.Getenv("GO_ON")); err == nil {
			return
		}
	}
}
`

// A watched output does something when a text appears.
type watched struct {
	mu   sync.Mutex
	text bytes.Buffer
	on   string
	do   func()
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if w.on != "" && strings.Contains(w.text.String(), w.on) {
		w.on = ""
		w.do()
	}
	return len(p), nil
}

func module(t *testing.T, source string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module p\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p_test.go"), []byte(source), 0o600))
	return dir
}

func TestWhatRunsIsToldWhileItRunsAndWhatFailedAtItsEnd(t *testing.T) {
	goOn := filepath.Join(t.TempDir(), "file")
	t.Setenv("GO_ON", goOn)
	out := &watched{on: "p runs for", do: func() { assert.NoError(t, os.WriteFile(goOn, nil, 0o600)) }}
	var results bytes.Buffer
	code, err := run("go", []string{"-C", module(t, program), "."}, out, &results, 10*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	text := out.text.String()
	assert.Contains(t, text, "compiling")
	assert.Contains(t, text, "the reason")
	assert.Contains(t, text, "FAIL  p  ")
	assert.NotContains(t, text, "hidden")
	assert.Contains(t, text, "WARNING: DATA RACE", "the race detector writes into the output of any test")
	assert.Contains(t, text, "NOT RUN: something is missing")
	assert.NotContains(t, text, "by choice")
	for _, result := range []string{"pass\tp\tTestPasses\t", "fail\tp\tTestFails/inner\t", "pass\tp\tTestWaits\t"} {
		assert.Contains(t, results.String(), result)
	}
}

func TestSeveralRunsAppendToOneFileOfResults(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "results")
	for _, line := range []string{"first\n", "second\n"} {
		code, err := recorded(name, func(results io.Writer) (int, error) {
			_, err := io.WriteString(results, line)
			return 7, err
		})
		require.NoError(t, err)
		require.Equal(t, 7, code)
	}
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "first\nsecond\n", string(text))
	_, err = recorded(filepath.Join(name, "no-directory"), func(io.Writer) (int, error) { return 0, nil })
	require.Error(t, err)
}

func TestTheRaceDetectorGetsCgo(t *testing.T) {
	notrun.Program(t, "no C compiler", "gcc", "clang")
	t.Setenv("CGO_ENABLED", "0")
	code, err := run("go", []string{"-C", module(t, "package p\n"), "-race", "."}, io.Discard, io.Discard, time.Minute)
	require.NoError(t, err)
	require.Zero(t, code)
}

func TestWhatDoesNotCompileIsAFailureWithItsReason(t *testing.T) {
	t.Parallel()
	out := &watched{}
	code, err := run("go", []string{"-C", module(t, "package p\n\nvar x int = true\n"), "."}, out, io.Discard, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	assert.Contains(t, out.text.String(), "cannot use true")
}

func TestTheInnermostOfTheLongestTestsIsTold(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := suite{since: map[string]time.Time{"A": now.Add(5), "B": now, "B/c": now.Add(2), "B/c/d": now.Add(3), "B/cd": now.Add(4)}}
	for range 100 { // the map has a random order
		require.Equal(t, "B/c/d", s.longest())
	}
}
