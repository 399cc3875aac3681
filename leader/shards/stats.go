package shards

// Stats are counters of a Node. All except Owned, Sessions and Members only rise.
type Stats struct {
	Owned    int // shards owned now
	Sessions int // sessions open now
	Members  int // members at the last look, this node included

	Acquired int64 // claims that succeeded
	Refused  int64 // claims of shards that another node owned
	Moved    int64 // shards given up for balance
	Released int64 // shards given up, moved ones included
	Lost     int64
	Failures int64 // failures of work, panics included
	GaveAway int64 // shards given up because of such failures
	Looks    int64
	Errors   int64 // calls of the backend that failed
}

// Stats returns the counters now.
func (n *Node) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stats
	s.Owned = len(n.owned)
	for _, o := range n.sessions {
		if o != nil && o.lasts() {
			s.Sessions++
		}
	}
	return s
}
