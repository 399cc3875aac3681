// Package notrun ends tests that this machine cannot run.
package notrun

import (
	"os"
	"os/exec"
	"testing"
)

// Skip skips a test with the reason why, in words that gotest prints. In CI, where every test must run, it fails the
// test.
func Skip(tb testing.TB, why string) {
	tb.Helper()
	end := tb.Skipf
	if os.Getenv("CI") == "true" {
		end = tb.Fatalf
	}
	end("NOT RUN: %s: %s", tb.Name(), why)
}

// Program returns the path of a program, by the first of names that exists on this machine. Without one it skips the
// test.
func Program(tb testing.TB, why string, names ...string) (path string) {
	tb.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Skip(tb, why)
	return ""
}
