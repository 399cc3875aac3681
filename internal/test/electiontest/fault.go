//go:build linux

package electiontest

import (
	"syscall"
	"time"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
)

// A Fault is what happens to a leader in a round.
type Fault struct {
	Name string

	// Strike makes it happen to a node. undo makes it good, once there is a successor.
	// It must not be nil.
	Strike func(c *Cluster, n *Node) (undo func())

	// Outage: it happens to all nodes, and is over when Strike returns, from when on the
	// bounds are counted.
	Outage bool

	// Survivable: the leader may go on leading, so that no successor is waited for.
	Survivable bool

	// Fits says for which candidates anything is promised then. nil = for all.
	Fits func(Job) bool

	// Fixed is how long after it another leads at the latest, but for what the machine's
	// speed decides, which is Quick: that may take much longer before a test fails.
	Fixed, Quick time.Duration

	// Notice is how long a leader may act after its successor's first act. A context
	// ends before others can lead, if it is the leader who decides or a lease that ends,
	// so that it is 0; but a server that ends a leadership tells the leader after the fact.
	Notice time.Duration
}

// bound is how long after the fault another leads at the latest, on a machine that is
// slower by a factor.
func (f Fault) bound(noise int) time.Duration { return f.Fixed + time.Duration(noise)*f.Quick }

func (f Fault) fits(j Job) bool { return f.Fits == nil || f.Fits(j) }

// Killed is kill -9. The process is started again.
func Killed(fixed, quick time.Duration) Fault {
	return Fault{Name: "killed", Fixed: fixed, Quick: quick, Strike: func(_ *Cluster, n *Node) func() {
		n.Kill()
		return n.Start
	}}
}

// Suspended is SIGSTOP for longer than the lease, then SIGCONT.
func Suspended(fixed, quick time.Duration) Fault {
	return Fault{Name: "suspended", Fixed: fixed, Quick: quick, Strike: func(c *Cluster, n *Node) func() {
		began := time.Now()
		n.Signal(syscall.SIGSTOP)
		return func() {
			<-time.After(time.Until(began.Add(Lease + time.Duration(c.Random.Int64N(int64(Lease/2))))))
			c.woken[n.Job.Node] = time.Now()
			n.Signal(syscall.SIGCONT)
		}
	}}
}

// CutOff is a silent cut of a node's Proxy: nothing arrives, and nobody is told.
func CutOff(fixed, quick time.Duration) Fault {
	return Fault{Name: "cut off", Fixed: fixed, Quick: quick, Strike: func(_ *Cluster, n *Node) func() {
		n.Proxy.Set(faultproxy.Hold)
		return func() { n.Proxy.Set(faultproxy.Pass) }
	}}
}

// Deposed is a leader that steps down.
func Deposed(fixed, quick time.Duration) Fault {
	return Fault{Name: "deposed", Fixed: fixed, Quick: quick, Strike: func(_ *Cluster, n *Node) func() {
		n.tell(tellStepDown)
		return func() {}
	}}
}

// Retired is a process that stops in good order, and is started again.
func Retired(fixed, quick time.Duration) Fault {
	return Fault{Name: retired, Fixed: fixed, Quick: quick, Strike: func(_ *Cluster, n *Node) func() {
		n.tell(tellStop)
		return func() {
			n.Exit()
			n.Start()
		}
	}}
}

const retired = "retired"
