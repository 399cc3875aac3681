// Package mailboxes reads the tables of package turns for programs that show or judge them.
package mailboxes

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// A Mailbox is one mailbox at the moment of a Read.
type Mailbox struct {
	Name      string  `json:"name"`
	Namespace string  `json:"namespace"` // "conversation=8"
	Due       int     `json:"due"`       // entities that could have a turn now, up to 10,000
	Oldest    Seconds `json:"oldest"`    // for how long the first of them has been ready
	Counts    Counts  `json:"counts"`    // the zero value, unless the Request has them
	Nodes     []Node  `json:"nodes"`

	Turns   []Turn `json:"turns"`   // that run, the oldest first
	Failing []Turn `json:"failing"` // that are ready, after Request.Failing attempts or more
	Stopped []Turn `json:"stopped"` // that a dead letter stopped
	Dead    []Turn `json:"dead"`    // dead letters of the last hour
}

// Counts are exact. Their cost grows with the number of messages.
type Counts struct {
	Messages int64 `json:"messages"`
	Ready    int64 `json:"ready"` // entities, likewise below
	Running  int64 `json:"running"`
	Stopped  int64 `json:"stopped"`
	Dead     int64 `json:"dead"` // letters
}

// A Node serves a mailbox. While it does, it holds the lock of its key.
type Node struct {
	Name  string `json:"name"`
	Key   int64  `json:"key,string"`
	Alive bool   `json:"alive"` // somebody holds the lock; false, unless the Request has counts
}

// A Turn is the turn or the dead letter of an entity. Fields that its list does not have are zero.
type Turn struct {
	Entity      string  `json:"entity"`
	Node        string  `json:"node"`
	Age         Seconds `json:"age"`
	Attempts    int     `json:"attempts"`
	Error       string  `json:"error"`
	Interrupted bool    `json:"interrupted"`
	Behind      bool    `json:"behind"` // a message has come since the turn began
}

// Seconds is a time as the server counts it.
type Seconds float64

// Duration returns s as a Duration, at least 0.
func (s Seconds) Duration() time.Duration { return max(time.Duration(s*Seconds(time.Second)), 0) }

// A Request says what to read.
type Request struct {
	Most    int  // number of mailboxes, in the order of their names
	Failing int  // attempts after which an entity is listed as failing
	Counts  bool // count exactly too, and say which nodes are alive
}

// A Conn is a connection or a pool.
type Conn interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// readableSQL needs no rights on the tables.
const readableSQL = `
SELECT count(*) = 5 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'pglatch_turns' AND c.relname IN ('mailboxes', 'entities', 'messages', 'nodes', 'dead')
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')`

// Readable reports whether the tables exist, and whether this role may read them.
func Readable(ctx context.Context, conn Conn) (ok bool, err error) {
	return ok, query(ctx, conn, &ok, readableSQL)
}

// readSQL reads by indexes, and no more than some rows of each kind, except for the counts. It returns a document, so
// that an old program and new tables go together.
const readSQL = `
SELECT coalesce(json_agg(json_build_object(
	'name', b.name, 'namespace', b.namespace,
	'due', (SELECT count(*) FROM (SELECT FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'ready' AND e.ready_at <= statement_timestamp() LIMIT 10000) x),
	'oldest', coalesce((SELECT extract(epoch FROM statement_timestamp() - e.ready_at) FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'ready' ORDER BY e.ready_at LIMIT 1), 0),
	'counts', CASE WHEN $3::bool THEN json_build_object(
		'messages', (SELECT count(*) FROM pglatch_turns.messages m WHERE m.mailbox = b.name),
		'ready', (SELECT count(*) FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'ready'),
		'running', (SELECT count(*) FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'running'),
		'stopped', (SELECT count(*) FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'stopped'),
		'dead', (SELECT count(*) FROM pglatch_turns.dead d WHERE d.mailbox = b.name)) END,
	'nodes', (SELECT json_agg(json_build_object('name', n.node, 'key', n.key::text, 'alive', $3::bool AND n.key IN (
			SELECT l.classid::int8 << 32 | l.objid::int8 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
				AND ` + pgsession.WhereDatabase + `)) ORDER BY n.node) FROM pglatch_turns.nodes n WHERE n.mailbox = b.name),
	'turns', (SELECT json_agg(json_build_object('entity', e.entity, 'node', e.node, 'age', extract(epoch FROM statement_timestamp() - e.claimed_at), 'attempts', e.attempts,
			'error', e.last_error, 'interrupted', e.interrupt IS NOT NULL,
			'behind', coalesce((SELECT m.sent_at > e.claimed_at FROM pglatch_turns.messages m WHERE m.mailbox = e.mailbox AND m.entity = e.entity ORDER BY m.number DESC LIMIT 1), false)) ORDER BY e.claimed_at)
		FROM (SELECT * FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'running' ORDER BY e.claimed_at LIMIT 50) e),
	'failing', (SELECT json_agg(json_build_object('entity', e.entity, 'attempts', e.attempts, 'error', e.last_error))
		FROM (SELECT x.* FROM (SELECT * FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'ready' ORDER BY e.ready_at DESC LIMIT 1000) x
			WHERE x.attempts >= $2::int8 ORDER BY x.attempts DESC LIMIT 20) e),
	'stopped', (SELECT json_agg(json_build_object('entity', d.entity, 'error', d.error, 'age', extract(epoch FROM statement_timestamp() - d.died_at)))
		FROM (SELECT d.* FROM (SELECT * FROM pglatch_turns.dead d WHERE d.mailbox = b.name ORDER BY d.died_at DESC LIMIT 1000) d
			JOIN pglatch_turns.entities e ON e.mailbox = d.mailbox AND e.entity = d.entity AND e.state = 'stopped' ORDER BY d.died_at DESC LIMIT 20) d),
	'dead', (SELECT json_agg(json_build_object('entity', d.entity, 'attempts', d.attempts, 'error', d.error, 'age', extract(epoch FROM statement_timestamp() - d.died_at)))
		FROM (SELECT * FROM pglatch_turns.dead d WHERE d.mailbox = b.name AND d.died_at > statement_timestamp() - interval '1 hour' ORDER BY d.died_at DESC LIMIT 20) d)
) ORDER BY b.name), '[]')::text
FROM (SELECT * FROM pglatch_turns.mailboxes ORDER BY name LIMIT $1::int8) b`

// Read returns the mailboxes.
func Read(ctx context.Context, conn Conn, r Request) (all []Mailbox, err error) {
	var document string
	if err := query(ctx, conn, &document, readSQL, int64(r.Most), int64(r.Failing), r.Counts); err != nil {
		return nil, err
	}
	return all, json.Unmarshal([]byte(document), &all)
}

// settingsSQL precedes a query in one round trip. Sent together, the two are one transaction, and the settings are local
// to it.
const settingsSQL = `
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('transaction_read_only', 'on', true),
       pg_catalog.set_config('statement_timeout', '2s', true),
       pg_catalog.set_config('lock_timeout', '1s', true)`

// query reads one value in a transaction of its own.
func query(ctx context.Context, conn Conn, into any, sql string, args ...any) error {
	var b pgx.Batch
	b.Queue(settingsSQL)
	b.Queue(sql, args...)
	results := conn.SendBatch(ctx, &b)
	defer func() { _ = results.Close() }() // the read below returns its error
	if _, err := results.Exec(); err != nil {
		return err
	}
	return results.QueryRow().Scan(into)
}
