package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// A terminal is the one whose foreground group this process is in. It is lent to
// the child's group, because only the foreground group may read from it
// (tcsetpgrp(3)). nil = none.
type terminal struct {
	file *os.File
	own  int // this process's group
	lent bool
}

// openTerminal returns the terminal that the child will find as its standard
// input, if it is in our hands.
func openTerminal(c Command) *terminal {
	t := &terminal{file: c.Stdin, own: syscall.Getpgrp()}
	if c.CloseStdin || t.foreground() != t.own {
		return nil
	}
	return t
}

// foreground returns the terminal's foreground group, 0 if the file is not the
// controlling terminal.
func (t *terminal) foreground() int {
	var id int32
	if err := t.ioctl(syscall.TIOCGPGRP, &id); err != nil {
		return 0
	}
	return int(id)
}

func (t *terminal) ioctl(request uintptr, id *int32) error {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, t.file.Fd(), request, uintptr(unsafe.Pointer(id)))
	if errno != 0 {
		return errno
	}
	return nil
}

// lend has the child make its group the foreground one before it runs.
func (t *terminal) lend(attr *syscall.SysProcAttr) {
	if t == nil {
		return
	}
	attr.Foreground, attr.Ctty = true, int(t.file.Fd())
	t.lent = true
}

// giveTo lends the terminal again, if it is this process's to lend.
func (t *terminal) giveTo(group int) {
	if t == nil || t.foreground() != t.own {
		return
	}
	id := int32(group)
	t.lent = t.ioctl(syscall.TIOCSPGRP, &id) == nil
}

// takeBack makes this process's group the foreground one again. The caller is
// locked to its thread.
func (t *terminal) takeBack() {
	if t == nil || !t.lent {
		return
	}
	// A process in the background may do it only while its thread blocks SIGTTOU.
	// (signal.Ignore would do too, but signal.Reset does not undo it for this signal.)
	const block, restore = 0, 2
	set, old := uint64(1)<<(syscall.SIGTTOU-1), uint64(0)
	setMask(block, &set, &old)
	defer setMask(restore, &old, nil)
	id := int32(t.own)
	_ = t.ioctl(syscall.TIOCSPGRP, &id) // fails when the terminal is gone
	t.lent = false
}

func setMask(how uintptr, set, old *uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, how, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(*set), 0, 0)
}

// notifyStop returns a channel that gets Ctrl-Z, which would stop this process and
// not the child. After stop Ctrl-Z is lost: package signal does not restore what it
// did before.
func notifyStop() (stopped <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(c, syscall.SIGTSTP)
	}
	return c, func() { signal.Stop(c) }
}

// stopSelf stops this process, and the rest of its group if job, until somebody
// lets it go on. It does nothing where nobody would, as the kernel does nothing
// on Ctrl-Z in an orphaned process group.
func stopSelf(job bool) {
	if orphaned() {
		return
	}
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	self := os.Getpid()
	if job {
		self = 0 // its group
	}
	if syscall.Kill(self, syscall.SIGSTOP) == nil {
		<-goOn // this thread may run on for a moment before the stop takes effect
	}
}

// orphaned reports whether no shell looks after this process's group: its nearest
// ancestor outside of it is of another session.
func orphaned() bool {
	self := readStatus(os.Getpid())
	for parent := self; parent.parent > 0; {
		parent = readStatus(parent.parent)
		if parent.group != self.group || parent.session != self.session {
			return parent.session != self.session
		}
	}
	return true
}
