// Package await waits in tests for events that come by themselves.
package await

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// How long a test waits for an event before it fails. A machine that is not busy needs milliseconds.
const (
	// Soon is for an event in this process or in its database. It is no longer than the shortest time after which an
	// operation that missed its event looks again. So a test does not take such a look for the event.
	Soon = 20 * time.Second

	// Patience is for an event in processes, servers or networks that the test started.
	Patience = time.Minute
)

// Until waits until condition holds. It calls condition on this goroutine, so that condition may use require: every
// millisecond at first, and less often the longer it has waited, and the longer condition takes. On a busy machine,
// tests that query a server all the time would make each other wait. The message of a failure is what: a format and
// its arguments, or a function that returns the text.
func Until(tb testing.TB, limit time.Duration, condition func() bool, what ...any) {
	tb.Helper()
	began := time.Now()
	for asked := began; !condition(); asked = time.Now() {
		waited, took := time.Since(began), time.Since(asked)
		if waited > limit {
			require.Fail(tb, "did not happen", message(what))
		}
		<-time.After(max(time.Millisecond, min(waited/20, 10*time.Millisecond), min(2*took, time.Second)))
	}
}

// Receive waits for a value of a channel. If the channel is closed, it returns the zero value.
func Receive[T any](tb testing.TB, limit time.Duration, from <-chan T, what ...any) (value T) {
	tb.Helper()
	select {
	case value = <-from:
	case <-time.After(limit):
		require.Fail(tb, "did not happen", message(what))
	}
	return value
}

func message(what []any) string {
	if len(what) == 0 {
		return ""
	}
	if text, ok := what[0].(func() string); ok {
		return text()
	}
	return fmt.Sprintf(fmt.Sprint(what[0]), what[1:]...)
}
