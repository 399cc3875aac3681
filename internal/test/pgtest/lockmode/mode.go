package lockmode

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// A Mode sets how a Locker uses sessions.
type Mode struct {
	Name         string // of the subtests
	LocksPerConn int    // advisory.Config.LocksPerConn
}

// The modes. Multiplexed has two locks per connection, so that a test has keys on one session and
// on several.
var (
	Dedicated   = Mode{Name: "dedicated", LocksPerConn: 1}
	Multiplexed = Mode{Name: "multiplexed", LocksPerConn: 2}
)

// All are the modes in which a test runs.
var All = []Mode{Dedicated, Multiplexed}

// Run runs a test in each mode, in parallel. The short form of the tests has one mode.
func Run(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for i, m := range modes(t) {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			if i > 0 {
				pgtest.Long(t)
			}
			test(t)
		})
	}
}

// InTurn runs a test in one mode after the other, for measurements and exact timing.
func InTurn(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	for _, m := range modes(t) {
		t.Run(m.Name, test)
	}
}

// modes returns the modes of a test that has no mode yet.
func modes(t *testing.T) []Mode {
	t.Helper()
	if only, ok := onlyIn[t.Name()]; ok {
		return []Mode{only.mode}
	}
	return All
}

// Of returns the mode of a test that Run or InTurn runs.
func Of(tb testing.TB) Mode {
	tb.Helper()
	m, ok := of(tb.Name())
	require.True(tb, ok, "this test opens a Locker and runs in no mode: use lockmode.Run")
	return m
}

func of(test string) (Mode, bool) {
	for word := range strings.SplitSeq(test, "/") {
		word, _, _ = strings.Cut(word, "#") // the second subtest with a name is name#01
		for _, m := range All {
			if m.Name == word {
				return m, true
			}
		}
	}
	return Mode{}, false
}

// Named returns the mode with that name, which a process got from its parent.
func Named(name string) (m Mode, ok bool) { return of(name) }

// Config returns a Locker's configuration in the mode, with as many connections for waits as it had
// for locks.
func (m Mode) Config(config advisory.Config) advisory.Config {
	config.LocksPerConn = m.LocksPerConn
	if config.MaxConns > 0 && m.LocksPerConn > 1 {
		config.MaxConns++ // the connection for new locks
	}
	return config
}
