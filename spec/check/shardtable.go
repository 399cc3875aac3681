package check

// A shardTable is who owns and works on which shard, as spec/shards.pml has it. Production decides this at the server, so
// there is no machine to link. TestTheTablesAcceptRandomWalksOfTheirModels compares the two.
type shardTable struct {
	owner map[string]string // the node with a shard's lock
	works map[place]bool
	nodes map[string]*shardNode

	write  string // none, claimed or guarded: one transaction at a time
	writer string
	later  bool // a later term of its shard has begun
	hangs  bool
}

// A shardNode is what the model knows of a node.
type shardNode struct {
	alive, stopped, hung, draining bool
	lapsed                         bool // its deadline came before the server ended its session
	window                         bool // it was stopped before it received the notice that its session was terminated
	claims, gives, stray           map[string]bool
}

func newShardTable() *shardTable {
	return &shardTable{owner: make(map[string]string), works: make(map[place]bool), nodes: make(map[string]*shardNode)}
}

func (t *shardTable) node(name string) *shardNode {
	n := t.nodes[name]
	if n == nil {
		n = &shardNode{claims: make(map[string]bool), gives: make(map[string]bool), stray: make(map[string]bool)}
		t.nodes[name] = n
	}
	return n
}

// step reports whether a node can act.
func (n *shardNode) step() bool { return n.alive && !n.stopped && !n.hung }

func (n *shardNode) idle() bool { return len(n.claims)+len(n.gives)+len(n.stray) == 0 }

// claim gives a shard to a node, whose work on it begins.
func (t *shardTable) claim(node, shard string) string {
	if wrong := t.lock(node, shard); wrong != "" {
		return wrong
	}
	t.works[place{node, shard}] = true
	return t.alone(shard)
}

// lock gives the lock of a shard to a node.
func (t *shardTable) lock(node, shard string) string {
	if has := t.owner[shard]; has != "" {
		return "the shard belongs to " + has
	}
	if t.guarded(shard) {
		return "a guarded transaction of the term before has not ended"
	}
	t.owner[shard] = node
	if shard == guardedShard && t.write != "" {
		t.later = true
	}
	return ""
}

// guardedShard is the shard of the model's transactions.
const guardedShard = "0"

func (t *shardTable) guarded(shard string) bool { return shard == guardedShard && t.write == "guarded" }

// alone checks that no two nodes work on a shard, but for one that could not know yet.
func (t *shardTable) alone(shard string) string {
	one := ""
	for at := range t.works {
		if n := t.node(at.process); at.key != shard || n.stopped || n.lapsed || n.window {
			continue
		}
		if one != "" {
			return one + " and " + at.process + " work on the shard"
		}
		one = at.process
	}
	return ""
}

// rest ends the work of a node on a shard.
func (t *shardTable) rest(node, shard string) string {
	at := place{node, shard}
	if !t.works[at] {
		return "no such work runs"
	}
	delete(t.works, at)
	return ""
}

// release gives a shard up, after the work on it has ended.
func (t *shardTable) release(node, shard string) string {
	if t.works[place{node, shard}] {
		return "the work on the shard has not ended"
	}
	if t.owner[shard] != node {
		return "the shard is not the node's"
	}
	delete(t.owner, shard)
	return ""
}

// endSession frees all shards of a node at the server.
func (t *shardTable) endSession(node string) {
	n := t.node(node)
	n.alive, n.hung = false, false
	clear(n.claims)
	clear(n.gives)
	clear(n.stray)
	for shard, has := range t.owner {
		if has == node {
			delete(t.owner, shard)
		}
	}
}

// working reports whether a node works on any shard.
func (t *shardTable) working(node string) bool {
	for at := range t.works {
		if at.process == node {
			return true
		}
	}
	return false
}

// owns reports whether a node has the lock of any shard.
func (t *shardTable) owns(node string) bool {
	for _, has := range t.owner {
		if has == node {
			return true
		}
	}
	return false
}

// lose ends all work of a node whose session has ended.
func (t *shardTable) lose(node string) string {
	n := t.node(node)
	if n.alive || n.stopped || !t.working(node) {
		return "it has a session, or no work"
	}
	for at := range t.works {
		if at.process == node {
			delete(t.works, at)
		}
	}
	clear(n.claims)
	clear(n.gives)
	clear(n.stray)
	return ""
}
