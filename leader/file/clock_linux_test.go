package file_test

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/leader/file"
)

const childForbidden = "PGLATCH_FILE_FORBIDDEN"

// A sandbox may forbid clock_gettime(2). Then a process has no clock in common with
// others, and must not say that it has.
func TestAProcessThatMayNotReadTheClockOfTheBootIsAlone(t *testing.T) {
	t.Parallel()
	if os.Getenv(childForbidden) == "" {
		require.Zero(t, proctest.Tests(t, "^"+t.Name()+"$", childForbidden+"=1").Wait())
		return
	}
	path := newPath(t)
	a, b := file.NewBackend(path), file.NewBackend(path)
	lead(t, a, "a")
	assert.NotContains(t, content(t, path), "alone-", "the control")
	before, shared := boottime.Shared()
	assert.True(t, shared)

	runtime.LockOSThread() // for good: the thread ends with the goroutine
	forbidClock(t)
	after, shared := boottime.Shared()
	assert.False(t, shared)
	assert.InDelta(t, before, after, float64(time.Minute), "it goes on")
	elsewhere := make(chan bool)
	go func() {
		_, shared := boottime.Shared()
		elsewhere <- shared
	}()
	assert.False(t, <-elsewhere, "two clocks are not mixed, whichever thread may read which")

	require.NoError(t, a.Renew(within(t), "a", ttl))
	assert.Contains(t, content(t, path), `"clock": "alone-`)
	assert.False(t, attempt(t, b, "b"))
	assert.NotEqual(t, file.ClockID(), file.ClockID())
}

// forbidClock makes clock_gettime(2) fail in this thread, as seccomp(2) describes. The
// times of package time are read without a system call.
func forbidClock(t *testing.T) {
	t.Helper()
	type instruction struct {
		code uint16
		_    uint8 // how far to jump if true
		jf   uint8 // if false
		k    uint32
	}
	filter := []instruction{
		{code: 0x20}, // load the number of the system call
		{code: 0x15, jf: 1, k: syscall.SYS_CLOCK_GETTIME},   // is it that?
		{code: 0x06, k: 0x00050000 | uint32(syscall.EPERM)}, // SECCOMP_RET_ERRNO
		{code: 0x06, k: 0x7fff0000},                         // SECCOMP_RET_ALLOW
	}
	program := struct {
		length uint16
		filter *instruction
	}{uint16(len(filter)), &filter[0]}
	const setSeccomp, setNoNewPrivs, modeFilter = 22, 38, 2 // of prctl(2)
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setNoNewPrivs, 1, 0, 0, 0, 0)
	require.Zero(t, errno)
	_, _, errno = syscall.RawSyscall(syscall.SYS_PRCTL, setSeccomp, modeFilter, uintptr(unsafe.Pointer(&program)))
	require.Zero(t, errno)
}
