//go:build !linux

package pgsession

import (
	"net"
	"time"
)

// limitUnacknowledged is not available on this platform.
func limitUnacknowledged(*net.TCPConn, time.Duration) {}
