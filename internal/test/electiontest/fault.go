//go:build linux

package electiontest

import (
	"syscall"
	"time"

	"github.com/pglatch/pglatch/internal/test/faultproxy"
)

// A Fault is an incident that hits a leader in a round.
type Fault struct {
	Name string

	// Strike applies the fault to a node. undo repairs it, once there is a successor. undo must not
	// be nil.
	Strike func(c *Cluster, n *Node) (undo func())

	// Outage: the fault hits all nodes, and is over when Strike returns; the bounds count from then
	// on.
	Outage bool

	// Survivable: the leader may continue to lead, so the round does not wait for a successor.
	Survivable bool

	// Fits reports for which candidates there is a guarantee. nil = for all.
	Fits func(Job) bool

	// Fixed is the longest time until another node leads, without the part that depends on the
	// machine's speed. That part is Quick: it may take much longer before a test fails.
	Fixed, Quick time.Duration

	// Notice is how long a leader may act after its successor's first act. If the leader decides,
	// or a lease ends, the context ends before others can lead, so Notice is 0. A server that ends
	// a leadership notifies the leader only afterwards.
	Notice time.Duration

	// Unnoticed is how many operations of a term may come even later than Notice allows: on a busy machine a node gets
	// its notice late.
	Unnoticed int
}

// Bound is the longest time from the fault until another node leads, on a machine that is slower by
// a factor.
func (f Fault) Bound(noise int) time.Duration { return f.Fixed + time.Duration(noise)*f.Quick }

func (f Fault) fits(j Job) bool { return f.Fits == nil || f.Fits(j) }

// Killed is kill -9. The process is restarted.
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

// CutOff is a silent cut of a node's Proxy: no data arrives, and neither end is notified.
func CutOff(fixed, quick time.Duration) Fault {
	return Fault{Name: "cut off", Fixed: fixed, Quick: quick, Strike: func(_ *Cluster, n *Node) func() {
		n.Proxy.Set(faultproxy.Hold)
		return func() { n.Proxy.Set(faultproxy.Pass) }
	}}
}

// Deposed makes a leader step down.
func Deposed(fixed, quick time.Duration) Fault {
	return Fault{Name: "deposed", Fixed: fixed, Quick: quick, Strike: func(_ *Cluster, n *Node) func() {
		n.tell(tellStepDown)
		return func() {}
	}}
}

// Retired makes a process stop in good order; it is restarted.
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
