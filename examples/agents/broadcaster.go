package agents

import "sync"

// An Event tells connected browsers that an agent changed.
type Event struct {
	AgentID int32  `json:"agent_id"`
	Hook    string `json:"hook"`
}

// A Broadcaster passes events to the clients of this process. Its clients concern no other
// process, so a mutex guards it, not an advisory lock.
type Broadcaster struct {
	mu      sync.Mutex
	clients map[chan Event]struct{} // nil when closed
}

// NewBroadcaster returns a Broadcaster without clients.
func NewBroadcaster() *Broadcaster {
	return &Broadcaster{clients: make(map[chan Event]struct{})}
}

// Subscribe returns a channel of the events from now on. Both leave and Close close it. A
// client that reads too slowly misses events.
func (b *Broadcaster) Subscribe() (events <-chan Event, leave func()) {
	c := make(chan Event, 16)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clients == nil {
		close(c)
		return c, func() {}
	}
	b.clients[c] = struct{}{}
	return c, func() { b.drop(c) }
}

func (b *Broadcaster) drop(c chan Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.clients[c]; ok {
		delete(b.clients, c)
		close(c)
	}
}

// Publish sends an event to every client. It never waits.
func (b *Broadcaster) Publish(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.clients {
		select {
		case c <- e:
		default: // a slow client must not hold up a hook
		}
	}
}

// Clients returns the number of connected clients.
func (b *Broadcaster) Clients() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.clients)
}

// Close disconnects all clients.
func (b *Broadcaster) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.clients {
		close(c)
	}
	b.clients = nil
}
