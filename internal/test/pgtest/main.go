package pgtest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/internal/test/soak"
)

// Main runs the tests of a package, removes the package's server, fails if goroutines remain, and exits.
// The options are goleak's, for goroutines that the package cannot end.
func Main(m *testing.M, options ...goleak.Option) {
	os.Exit(Run(m, options...))
}

// Run is Main without the exit: it returns the exit code, for a package with further cleanup.
func Run(m *testing.M, options ...goleak.Option) int {
	soak.Repeatable()
	code := m.Run()
	if err := Close(); err != nil {
		fmt.Fprintf(os.Stderr, "pgtest: %v\n", err)
		code = max(code, 1)
	}
	if testing.Short() {
		return code // a test that DSN skips leaves goroutines
	}
	return leak.Check(code, options...)
}
