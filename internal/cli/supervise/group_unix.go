//go:build unix

package supervise

import (
	"os"
	"syscall"
)

// A group is the process group of a child, which has the child's number.
type group struct {
	id int
	// changes gets the child's status each time it is stopped, and when it ended.
	changes chan syscall.WaitStatus
}

// newGroup watches the child, whose last status must be received.
func newGroup(child *os.Process) *group {
	g := &group{id: child.Pid, changes: make(chan syscall.WaitStatus)}
	_ = child.Release() // os.Process.Wait does not tell of a child that is stopped
	go func() {
		for {
			status := wait(g.id, syscall.WUNTRACED)
			g.changes <- status
			if !status.Stopped() {
				return
			}
		}
	}()
	return g
}

func wait(pid, options int) syscall.WaitStatus {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, options, nil)
		switch err {
		case nil:
			return status
		case syscall.EINTR:
		default:
			panic("BUG: somebody else reaped the child: " + err.Error())
		}
	}
}

// signal sends to every process of the group. One that is gone already is as good.
func (g *group) signal(s syscall.Signal) {
	_ = syscall.Kill(-g.id, s)
}

// ask sends a signal that should end the group, also if it is stopped.
func (g *group) ask(s syscall.Signal) {
	g.signal(s)
	g.signal(syscall.SIGCONT)
}

// alive reports whether a process is left in the group of a child that is reaped.
func (g *group) alive() bool {
	if syscall.Kill(-g.id, 0) == syscall.ESRCH {
		return false
	}
	if hasLiving(g.id) {
		return true
	}
	g.signal(syscall.SIGKILL) // one that a process started that ended during the look
	return false
}
