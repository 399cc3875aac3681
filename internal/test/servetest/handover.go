package servetest

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/await"
)

// AwaitMessages waits until the release of a lock at one server wakes a waiter at another, which
// never polls.
func AwaitMessages(tb testing.TB, from, to Peer) {
	tb.Helper()
	const wait = 3 * time.Second // at its end it tries once more
	await.Until(tb, 3*Bound, func() bool {
		name := "message-" + rand.Text() // a try that fails can leave its lock held
		held, err := from.Client.Acquire(tb.Context(), Ask(name, "holder"))
		if err != nil {
			return false
		}
		asked := Metric(tb, to.Server, "lock_op_latency_ms", `"acquire"`)
		done := make(chan time.Duration)
		go func() {
			began := time.Now()
			l, err := to.Client.AcquireWait(context.WithoutCancel(tb.Context()), Ask(name, "waiter"), wait)
			took := time.Since(began)
			if err == nil {
				_ = to.Client.Release(context.WithoutCancel(tb.Context()), l.Claim)
			} else {
				took = wait
			}
			done <- took
		}()
		for Metric(tb, to.Server, "lock_op_latency_ms", `"acquire"`) == asked && tb.Context().Err() == nil {
			<-time.After(time.Millisecond)
		}
		err = from.Client.Release(tb.Context(), held.Claim)
		return <-done < wait && err == nil
	}, "no message comes")
}
