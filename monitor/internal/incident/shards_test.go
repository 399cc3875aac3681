package incident_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

// shardOwner is a process that owns order/1 to order/3, of which its answer has room for the first, under the name of its Locker.
func shardOwner() *world {
	w := newWorld()
	w.process("a", 901)
	l := w.holds("a", 1, key(1, 1))
	l.Group = "order=1"
	w.row(1, "a", key(1, 2), true)
	w.row(1, "a", key(1, 3), true)
	w.row(1, "a", members, true).Shared = true
	w.answer("a").Groups = []introspect.Group{{Name: "order=1", Number: 1, Members: members, Node: "web-3", Session: 1, Owned: 3}}
	return w
}

var members = namespace.Tag{ClassID: 1<<31 | 5, ObjSubID: namespace.SingleForm}

func TestHealthyShardsAreNoVerdict(t *testing.T) {
	t.Parallel()
	w := shardOwner()
	w.look(time.Hour).look(time.Hour)
	assert.Empty(t, w.found)
	for _, k := range w.last.Keys {
		assert.Equal(t, incident.Shard, k.Kind)
		assert.Equal(t, "a", k.Holders[0].Process.Name)
		assert.Equal(t, "web-3", k.Holders[0].Node)
	}

	w = shardOwner()
	w.answer("a").Groups = nil
	w.look(time.Hour).look(time.Hour)
	assert.NotNil(t, w.has(incident.Pooler), "control: nobody says whose they are")
	assert.NotNil(t, w.has(incident.HeldLong), "control: they are no shards")
}

// A leader holds the election's lock for as long as it leads, and its followers wait for it.
func TestAHealthyElectionIsNoVerdict(t *testing.T) {
	t.Parallel()
	healthy := func() *world {
		w := elects("leader", "follower")
		w.row(5, "a", key(9, 100), true)
		w.row(6, "b", key(9, 100), false)
		w.answer("a").Elections[0].Session = 5
		return w
	}
	w := healthy().look(time.Hour).look(time.Hour)
	assert.Empty(t, w.found)

	w = healthy()
	w.answer("a").Elections, w.answer("b").Elections = nil, nil
	w.look(time.Hour).look(time.Hour)
	assert.NotNil(t, w.has(incident.HeldLong), "control: it is no election")
}

func TestShardsOfASilentNodeAreOneCriticalVerdict(t *testing.T) {
	t.Parallel()
	w := shardOwner().look(0)
	w.silence("a")
	w.looks()
	v := requireVerdict(t, w, incident.HolderSilent)
	assert.Equal(t, incident.Critical, v.Severity)
	assert.Contains(t, v.Text, "holds 4 keys")
	assert.Contains(t, strings.Join(v.Evidence, "\n"), "it holds order/1")
	assert.Len(t, w.found, 1)
}
