// Package broken tests a conformance suite with implementations that are wrong: each must fail in the subtest that is for its
// fault.
package broken

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/proctest"
)

// variable tells a child, by the fault's name, to run the suite.
const variable = "PGLATCH_TEST_BROKEN"

// Run runs a suite on an implementation with each fault. For each one, faults has the begin of the name of the subtest that
// must fail. The suite runs in this test's own binary, where it fails. The control of the control is an implementation
// without a fault, which is "": it passes. Run must be the only call of its test.
func Run(t *testing.T, suite func(t *testing.T, fault string), faults map[string]string) {
	t.Helper()
	if fault, is := os.LookupEnv(variable); is {
		suite(t, fault)
		return
	}
	t.Parallel()
	faults[""] = ""
	test := t.Name()
	for fault, found := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			found := strings.ReplaceAll(found, " ", "_")
			p := proctest.Tests(t, "^"+test+"$/^"+regexp.QuoteMeta(found), variable+"="+fault)
			failed := p.Wait() != 0
			require.Equal(t, fault != "", failed, "%s", p.Stdout.String())
			if failed {
				assert.Contains(t, p.Stdout.String(), "--- FAIL: "+test+"/"+found)
				assert.NotRegexp(t, "(?m)^panic:", p.Stdout.String()+p.Stderr.String())
			}
		})
	}
}
