// Package group is the SQL of a group of shards: their keys, and what sessions and observers read and write of its tables.
package group

import (
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// A Group is where its shards live: keys of a namespace, and rows of three tables.
type Group struct {
	Namespace namespace.Namespace
	// Terms has a row for each shard that was ever claimed: its name, its key and its last term. Members has
	// what each session of a node says of itself, which is valid while the session shares the lock
	// Member. Orders has what people want: pins and drains. All are SQL.
	Terms, Members, Orders string
}

// Member returns the lock that all sessions of the group share: a member is who has one that does. Like
// every derivation it never changes: it is the lock of guards of an election, but of the text "pglatch shards" ‖ name ‖ "=" ‖ number, and
// so in pglatch's own space.
func (g Group) Member() namespace.Tag {
	return electionkeys.OfText([]byte("pglatch shards" + g.Namespace.String())).Guard()
}

// Guard returns the lock that all guarded transactions of a shard share: whoever holds up a claim has it. Nobody takes it
// alone. It never changes: it is the lock of guards of an election, but of the text "pglatch shard " ‖ name ‖ "=" ‖ number ‖ "/" ‖ shard.
func (g Group) Guard(name string) namespace.Tag {
	return electionkeys.OfText([]byte("pglatch shard " + g.Namespace.String() + "/" + name)).Guard()
}

// NameSQL is the group's name in the tables, as SQL.
func (g Group) NameSQL() string { return pgsession.Literal(g.Namespace.String()) }

// Channel is the group's channel for NOTIFY.
func (g Group) Channel() string {
	return "pglatch_shards_" + strconv.FormatUint(keyOf(g.Member()), 16)
}

// Key returns a shard's key as one number, which no other form of key of the namespace has: pairs have the
// namespace's number in their upper half, and hashed keys that and more.
func (g Group) Key(name string) (int64, error) {
	key, err := g.Namespace.Text(name)
	return int64(keyOf(key.Tag())), err
}

// TagOf is the inverse of Key.
func (g Group) TagOf(key int64) namespace.Tag {
	tag := namespace.Tag{ClassID: uint32(uint64(key) >> 32), ObjID: uint32(key), ObjSubID: namespace.SingleForm}
	if tag.ClassID <= namespace.MaxNumber {
		tag.ObjSubID = namespace.PairForm
	}
	return tag
}

// keyOf is a tag as one number.
func keyOf(tag namespace.Tag) uint64 { return uint64(tag.ClassID)<<32 | uint64(tag.ObjID) }

// textArray is an array of text as SQL.
func textArray(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = pgsession.Literal(v)
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]"
}

// int8List is the inside of an array's literal.
func int8List(values []int64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.FormatInt(v, 10)
	}
	return strings.Join(texts, ",")
}
