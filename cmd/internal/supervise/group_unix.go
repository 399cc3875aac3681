//go:build unix

package supervise

import (
	"os"
	"syscall"
)

// A group is the process group of a child; its id is the child's pid.
type group struct {
	id int
	// changes receives the child's status each time it is stopped, and when it ended.
	changes chan syscall.WaitStatus
}

// newGroup watches the child. The caller must receive its last status.
func newGroup(child *os.Process) *group {
	g := &group{id: child.Pid, changes: make(chan syscall.WaitStatus)}
	_ = child.Release() // os.Process.Wait does not report that a child is stopped
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

// signal sends s to every process of the group. A group that is already gone is not an error.
func (g *group) signal(s syscall.Signal) {
	_ = syscall.Kill(-g.id, s)
}

// ask sends a signal that should end the group, even if the group is stopped.
func (g *group) ask(s syscall.Signal) {
	g.signal(s)
	g.signal(syscall.SIGCONT)
}

// alive reports whether the group of a reaped child has processes left.
func (g *group) alive() bool {
	if syscall.Kill(-g.id, 0) == syscall.ESRCH {
		return false
	}
	if hasLiving(g.id) {
		return true
	}
	g.signal(syscall.SIGKILL) // a process that another one started and left behind during the check
	return false
}
