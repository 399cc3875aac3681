package pgsession

import "time"

var processStart = time.Now()

func monotonicNow() time.Duration { return time.Since(processStart) }
