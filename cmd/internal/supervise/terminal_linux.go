package supervise

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the controlling terminal. It is lent to the child's group if this process's group is
// its foreground group, because only the foreground group may read from it (tcsetpgrp(3)). nil = none.
type terminal struct {
	file  *os.File
	own   int // this process's group
	group int // the group that it is lent to, 0 = none
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{file: file, own: syscall.Getpgrp()}
}

// isFor reports whether the child gets the terminal from its start: it has no other input and output.
// In a pipeline, such as one with a pager, it has to ask.
func (t *terminal) isFor(c Command) bool {
	if t == nil || c.CloseStdin {
		return false
	}
	for _, file := range []*os.File{c.Stdin, c.Stdout} {
		if (&terminal{file: file}).foreground() == 0 {
			return false
		}
	}
	return true
}

func (t *terminal) isLent() bool { return t != nil && t.group != 0 && t.foreground() == t.group }

func (t *terminal) close() {
	if t != nil {
		t.takeBack()
		_ = t.file.Close()
	}
}

// foreground returns the terminal's foreground group, 0 if the file is not the controlling terminal.
func (t *terminal) foreground() int {
	id, err := unix.IoctlGetUint32(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return int(id)
}

func (t *terminal) setForeground(group int) error {
	return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group)
}

// giveTo lends the terminal, if this process may lend it, and reports whether the group has it.
func (t *terminal) giveTo(group int) bool {
	if t == nil {
		return false
	}
	switch t.foreground() {
	case group:
		t.group = group
		return true
	case t.own:
		if t.setForeground(group) == nil {
			t.group = group
			return true
		}
	}
	return false
}

// takeBack makes this process's group the foreground one again, unless a shell has chosen another one
// meanwhile. The caller is locked to its thread.
func (t *terminal) takeBack() {
	if t == nil || t.group == 0 {
		return
	}
	lent := t.group
	t.group = 0
	if id := t.foreground(); id != lent && syscall.Kill(-id, 0) != syscall.ESRCH {
		return
	}
	// A background process may do this only while its thread blocks SIGTTOU. (signal.Ignore would work
	// too, but signal.Reset does not undo it for this signal.)
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGTTOU - 1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old)
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }()
	_ = t.setForeground(t.own) // fails when the terminal is gone
}

// notifyStop returns a channel with the signals that would stop this process and not the child:
// Ctrl-Z, and SIGTTIN if another process of its group reads while the child has the terminal. After
// stop these signals have no effect: package signal does not restore their earlier effect.
func notifyStop() (stopped <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTSTP, syscall.SIGTTIN)
	return c, func() { signal.Stop(c) }
}

// stopSelf stops this process, and the rest of its group if job, until it is continued. It does
// nothing if no shell would continue it; the kernel likewise ignores Ctrl-Z in an orphaned process
// group.
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
		<-goOn // this thread may run on briefly before the stop takes effect
	}
}

// orphaned reports whether no shell controls this process's group: its nearest ancestor outside of the
// group is in another session.
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

// suspendPends reports whether Ctrl-Z is pending for a process that is stopped for another reason,
// according to proc_pid_status(5) (ShdPnd). When the process continues, the kernel discards it
// (signal(7), SIGCONT).
func suspendPends(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), "\nShdPnd:")
	mask, _, _ := strings.Cut(rest, "\n")
	pending, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	return err == nil && pending&(1<<(syscall.SIGTSTP-1)) != 0
}
