package advisory

import (
	"sync"

	"github.com/pglatch/pglatch/namespace"
)

// txNames remembers the keys of earlier LockTx and LockSQLTx calls in this process, for the errors of
// later calls: the server knows only the tag of a key. New keys overwrite old ones.
var txNames keyNames

// longestName is the maximum length of an entity that is remembered.
const longestName = 256

type keyNames struct {
	mu   sync.Mutex
	last [1024]namespace.Key // by a hash of the tag
}

func (n *keyNames) slot(tag namespace.Tag) *namespace.Key {
	return &n.last[(tag.ClassID*31+tag.ObjID)%uint32(len(n.last))]
}

func (n *keyNames) note(keys []namespace.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range keys {
		if len(key.Entity()) <= longestName {
			*n.slot(key.Tag()) = key
		}
	}
}

// of returns the last key that had the tag.
func (n *keyNames) of(tag namespace.Tag) (key namespace.Key, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key = *n.slot(tag)
	return key, key.Valid() && key.Tag() == tag
}
