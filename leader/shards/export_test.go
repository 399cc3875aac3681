package shards

import "github.com/pglatch/pglatch/internal/boottime"

// Distrust lets the last renewals of all sessions be long past, and no timer run, as after a
// suspend of the machine.
func (n *Node) Distrust() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.sessions {
		o.until.Set(boottime.Moment{})
	}
}
