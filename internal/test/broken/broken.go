// Package broken tests a conformance suite with implementations that are wrong: each must fail in the subtest that is for its
// fault.
package broken

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Table adds a fault of an implementation: its name, the begin of the name of the subtest that must fail, and a function
// that makes an implementation wrong in this way.
type Table[B any] func(fault, found string, breaks func(right *B))

// variable tells a child, by the fault's name, to run the suite.
const variable = "PGLATCH_TEST_BROKEN"

// Run runs a suite with each fault of a table. The suite runs in this test's own binary, where it fails. The control of the
// control has no fault, and passes. Run must be the only call of its test.
func Run[B any](t *testing.T, suite func(t *testing.T, breaks func(*B)), faults func(Table[B])) {
	t.Helper()
	run := each[B]
	if name, is := os.LookupEnv(variable); is {
		run = func(t *testing.T, fault, _ string, breaks func(*B)) {
			t.Helper()
			if fault == name {
				suite(t, breaks)
			}
		}
	} else {
		t.Parallel()
	}
	run(t, "nothing is wrong", "", func(*B) {})
	faults(func(fault, found string, breaks func(*B)) {
		t.Helper()
		run(t, fault, found, breaks)
	})
}

// each runs the suite in a child.
func each[B any](t *testing.T, fault, found string, _ func(*B)) {
	t.Helper()
	test := t.Name()
	t.Run(fault, func(t *testing.T) {
		t.Parallel()
		found := strings.ReplaceAll(found, " ", "_")
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$/^"+regexp.QuoteMeta(found), "-test.timeout=5m")
		cmd.Env = append(os.Environ(), variable+"="+fault)
		out, err := cmd.CombinedOutput()
		if found == "" {
			require.NoError(t, err, "%s", out)
			return
		}
		require.Error(t, err, "%s", out)
		assert.Contains(t, string(out), "--- FAIL: "+test+"/"+found)
		assert.NotRegexp(t, "(?m)^panic:", string(out))
	})
}
