package supervise

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// goOnUntilStarted lets a child go on that was stopped between fork and exec, until what it
// returns is called. Ctrl-Z in the moment in which the child is still in this process's group
// stops it there, and the thread that starts it in vfork(2) with it; this process, which
// catches the signal, then stops both once the child has started.
func goOnUntilStarted() (started func()) {
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		look := time.NewTicker(lookEvery)
		defer look.Stop()
		for {
			select {
			case <-done:
				return
			case <-look.C:
				continueUnstarted()
			}
		}
	})
	return func() { close(done); looking.Wait() }
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
