package check

import (
	"github.com/pglatch/pglatch/internal/test/trace"
)

// Shards replays a run of nodes that own shards, on the table of shards and with the rules for terms that Elections has. A
// claim of a shard that another node has is legal only if that node loses it: the server ended its session, and the node
// has not reported that yet. A node that reports a release had the shard until its work ended.
func Shards(run []trace.Event) error {
	table, terms := newShardTable(), newTerms()
	for i, e := range run {
		if wrong := terms.see(i, e); wrong != "" {
			return refuse(run, i, "%s", wrong)
		}
		if wrong := table.real(e); wrong != "" {
			return refuse(run, i, "%s", wrong)
		}
	}
	return terms.finish(run)
}

// real moves the table by an event of a real node. Its shards have several sessions, of which the server may end one.
func (t *shardTable) real(e trace.Event) string {
	at := place{e.Process, e.Key}
	switch e.Kind {
	case trace.Acquired:
		if t.owner[e.Key] == e.Process {
			return "the node has the shard already"
		}
		delete(t.owner, e.Key) // its owner has released it, or lost it, and reports that later; terms.finish judges which
		return t.lock(e.Process, e.Key)
	case trace.Works:
		if t.works[at] {
			return "its work runs already"
		}
		t.works[at] = true
	case trace.Rests:
		return t.rest(e.Process, e.Key)
	case trace.Released, trace.Lost:
		if t.owner[e.Key] == e.Process {
			delete(t.owner, e.Key)
		}
	}
	return ""
}
