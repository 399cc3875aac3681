package agents

import "sync"

// maxRemembered bounds an in-memory cache. A full cache is cleared.
const maxRemembered = 10_000

// A SessionRegistry remembers the agents of the sessions that this process has seen. A
// session never changes its agent, so differences between processes do no harm. A mutex
// guards the registry, not an advisory lock.
type SessionRegistry struct {
	mu     sync.Mutex
	agents map[string]int32
}

// NewSessionRegistry returns an empty registry.
func NewSessionRegistry() *SessionRegistry {
	return &SessionRegistry{agents: make(map[string]int32)}
}

// Add remembers a session's agent.
func (r *SessionRegistry) Add(session string, agentID int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.agents) >= maxRemembered {
		clear(r.agents)
	}
	r.agents[session] = agentID
}

// Find returns a session's agent, if it is remembered.
func (r *SessionRegistry) Find(session string) (agentID int32, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	agentID, ok = r.agents[session]
	return agentID, ok
}
