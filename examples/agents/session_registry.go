package agents

import "sync"

// maxRemembered bounds what a process remembers for speed only: then it begins again.
const maxRemembered = 10_000

// A SessionRegistry remembers the agents of the sessions that this process has heard of.
// A session never changes its agent, so what another process knows or forgets does not
// matter, and a mutex guards it and not an advisory lock.
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
