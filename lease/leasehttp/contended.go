package leasehttp

import "sync"

// A contended remembers some locks for which the client last had to wait. An acquire that waits for
// one of them is sent alone: in a batch, it would only learn that the lock is held.
type contended struct {
	mu    sync.Mutex
	names map[string]struct{}
}

const mostContended = 1024 // names

func (c *contended) has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.names[name]
	return ok
}

// note records whether somebody was in the way of an acquire.
func (c *contended) note(name string, waited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !waited {
		delete(c.names, name)
		return
	}
	if c.names == nil || len(c.names) >= mostContended {
		c.names = make(map[string]struct{})
	}
	c.names[name] = struct{}{}
}
