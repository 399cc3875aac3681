package pgtest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, removes the package's server, fails if goroutines remain, and exits.
// The options are goleak's, for what the package cannot end.
func Main(m *testing.M, options ...goleak.Option) {
	os.Exit(Run(m, options...))
}

// Run is Main without the exit: it returns the exit code, for a package that has more to remove.
func Run(m *testing.M, options ...goleak.Option) int {
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintf(os.Stderr, "pgtest: %v\n", err)
		code = max(code, 1)
	}
	if code != 0 || testing.Short() {
		return code // a failed test leaves goroutines, and so does one that DSN skips; a report about them would hide the failure
	}
	if err := goleak.Find(options...); err != nil {
		fmt.Fprintf(os.Stderr, "pgtest: goroutines remain after the tests: %v\n", err)
		return 1
	}
	return 0
}
