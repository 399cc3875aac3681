// Package bubble moves the fake clock of testing/synctest.
package bubble

import "time"

// Sleep moves the fake clock by d, when each goroutine of the bubble waits. It panics outside a bubble, where it would
// only wait.
func Sleep(d time.Duration) {
	// testing/synctest documents that the clock of a bubble begins at the start of the year 2000.
	if time.Now().Year() > 2019 {
		panic("bubble: Sleep outside a bubble of testing/synctest waits for time; wait for the event with await.Until")
	}
	time.Sleep(d) //nolint:forbidigo // the clock is the fake one
}
