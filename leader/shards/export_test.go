package shards

import (
	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
)

// Distrust lets the last renewals of all sessions be long past, and no timer run, as after a
// suspend of the machine.
func (n *Node) Distrust() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.sessions {
		o.until.Set(boottime.Moment{})
	}
}

// Hurry has the node open the next session at once, however early the last one ended.
func (n *Node) Hurry() { n.comeback = renew.Comeback{} }
