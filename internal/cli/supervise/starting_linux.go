package supervise

import (
	"bytes"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
)

// goOnUntilStarted lets a child go on that was stopped between fork and exec, until what it
// returns is called. Ctrl-Z in the moment in which the child is still in this process's group
// stops it there, and the thread that starts it in vfork(2) with it; this process, which
// catches the signal, then stops both once the child has started.
//
// The runtime does not know that the thread is blocked, and gives the rest of this process no
// reason to run: so this goroutine runs before the start, and sleeps in the kernel.
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
	return func() { over.Store(true) } // it ends by itself
}

// continueUnstarted continues stopped children of this process that are still this program.
func continueUnstarted() {
	dir, err := os.Open("/proc")
	if err != nil {
		return
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s := readStatus(pid); s.state == 'T' && s.parent == os.Getpid() && isThisProgram(pid) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// isThisProgram reports whether a process has this one's command line, as a child has
// before exec.
func isThisProgram(pid int) bool {
	own, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		return false
	}
	its, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.Equal(own, its)
}
