// Package group is the SQL of a group of shards: their keys, and all reads and writes of its tables by
// sessions and observers.
package group

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// A Group identifies the storage of its shards: keys of a namespace, and rows of three tables.
type Group struct {
	Namespace namespace.Namespace
	// Terms has a row for each shard that was ever claimed: its name, its key and its last term. Members has the
	// announcement of each session, which is valid while the session shares the lock Member. Orders has the
	// operators' orders: pins and drains. All three are names of tables, as SQL.
	Terms, Members, Orders string
}

// Member returns the lock that all sessions of the group share: a node is a member while one of its sessions
// shares the lock. Its key never changes. It is derived like the lock of an election's guards, from the text
// "pglatch shards" ‖ name ‖ "=" ‖ number, and so in pglatch's own space.
func (g Group) Member() namespace.Tag {
	return electionkeys.OfText([]byte("pglatch shards" + g.Namespace.String())).Guard()
}

// Guard returns the lock that all guarded transactions of a shard share: every transaction that blocks a claim
// has it. No session takes it exclusively. Its key never changes. It is derived like the lock of an election's
// guards, from the text "pglatch shard " ‖ name ‖ "=" ‖ number ‖ "/" ‖ shard.
func (g Group) Guard(name string) namespace.Tag {
	return electionkeys.OfText([]byte("pglatch shard " + g.Namespace.String() + "/" + name)).Guard()
}

// NameSQL returns the group's name in the tables, as SQL.
func (g Group) NameSQL() string { return pgsession.Literal(g.Namespace.String()) }

// Channel returns the group's channel for NOTIFY.
func (g Group) Channel() string {
	return "pglatch_shards_" + strconv.FormatUint(keyOf(g.Member()), 16)
}

// NotifySQL sends these payloads to the group's channel; without any, an empty one.
func (g Group) NotifySQL(payloads []string) string {
	if len(payloads) == 0 {
		payloads = []string{""}
	}
	return fmt.Sprintf("SELECT pg_catalog.count(pg_catalog.pg_notify('%s', a)), pg_catalog.pg_backend_pid() FROM pg_catalog.unnest(%s) AS a", g.Channel(), textArray(payloads))
}

// Key returns a shard's key as one number. No other form of key of the namespace has that number: the upper
// half of a pair is the namespace's number alone, and that of a hashed key also contains a part of the hash.
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

// keyOf returns a tag as one number.
func keyOf(tag namespace.Tag) uint64 { return uint64(tag.ClassID)<<32 | uint64(tag.ObjID) }

// textArray returns an array of text as SQL.
func textArray(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = pgsession.Literal(v)
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]"
}

// int8List returns the contents of an array literal.
func int8List(values []int64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.FormatInt(v, 10)
	}
	return strings.Join(texts, ",")
}
