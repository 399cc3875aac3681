//go:build unix

// Package processors measures what benchmarks use of the processors.
package processors

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Used returns the time that this process has had of the processors.
func Used(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
