// Package leak fails the tests of a package that leave goroutines behind.
package leak

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end after the tests. Those of other libraries (a closed connection of
// net/http, a request of gocron's) end on their own, on a busy machine seconds later. A leaked one never ends.
const patience = 15 * time.Second

// Main runs the tests of a package, fails if goroutines remain, and exits. The options are goleak's, for goroutines
// that the package cannot end.
func Main(m *testing.M, options ...goleak.Option) { os.Exit(Check(m.Run(), options...)) }

// Check returns the exit code for tests that ended with code: code itself, or 1 if they passed and goroutines remain. A
// failed test leaves goroutines, and a report about them would hide the failure.
func Check(code int, options ...goleak.Option) int {
	if code != 0 {
		return code
	}
	if err := find(patience, options...); err != nil {
		fmt.Fprintf(os.Stderr, "leak: goroutines remain %v after the tests: %v\n", patience, err)
		return 1
	}
	return 0
}

func find(patience time.Duration, options ...goleak.Option) (err error) {
	for deadline := time.Now().Add(patience); ; {
		if err = goleak.Find(options...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
