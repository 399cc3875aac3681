//go:build !linux

package pgsession

import (
	"net"
	"time"
)

// limitUnacknowledged has no counterpart here.
func limitUnacknowledged(*net.TCPConn, time.Duration) {}
