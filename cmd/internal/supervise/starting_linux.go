package supervise

import (
	"bytes"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
)

// goOnUntilStarted lets a child continue that was stopped between fork and exec, until the returned
// function is called. If Ctrl-Z comes while the child is still in this process's group, it stops
// the child there. It also stops the thread that starts the child, in vfork(2). This process
// catches the signal, and stops both once the child has started.
//
// The runtime does not know that the thread is blocked, and gives the rest of this process no
// reason to run. This goroutine therefore runs before the start, and sleeps in the kernel.
func goOnUntilStarted() (started func()) {
	var over atomic.Bool
	ready := make(chan struct{})
	go func() {
		close(ready)
		pause := syscall.NsecToTimespec(int64(lookEvery))
		for {
			_ = syscall.Nanosleep(&pause, nil)
			if over.Load() {
				return
			}
			continueUnstarted()
		}
	}()
	<-ready
	return func() { over.Store(true) } // the goroutine then ends
}

// continueUnstarted continues stopped children of this process that have not called exec yet.
func continueUnstarted() {
	all, _ := processes()
	for _, pid := range all {
		if s := readStatus(pid); s.state == 'T' && s.parent == os.Getpid() && isThisProgram(pid) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// isThisProgram reports whether a process has this one's command line, like a child before exec.
func isThisProgram(pid int) bool {
	own, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return false
	}
	its, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.Equal(own, its)
}
