package monitor

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

// mailboxesThereSQL reports whether the tables of package turns are there, and whether this role may read them.
const mailboxesThereSQL = `
SELECT count(*) = 5 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'pglatch_turns' AND c.relname IN ('mailboxes', 'entities', 'messages', 'nodes', 'dead')
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')`

// mailboxesSQL reads what verdicts need, by indexes, and no more than some rows of each kind. It is a document, so that
// an old monitor and new tables go together.
const mailboxesSQL = `
SELECT coalesce(json_agg(json_build_object(
	'name', b.name, 'namespace', b.namespace,
	'ready', (SELECT count(*) FROM (SELECT FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'ready' AND e.ready_at <= statement_timestamp() LIMIT 10000) x),
	'oldest', coalesce((SELECT extract(epoch FROM statement_timestamp() - e.ready_at) FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'ready' ORDER BY e.ready_at LIMIT 1), 0),
	'nodes', (SELECT coalesce(json_agg(json_build_object('name', n.node, 'key', n.key::text)), '[]') FROM pglatch_turns.nodes n WHERE n.mailbox = b.name),
	'turns', (SELECT coalesce(json_agg(json_build_object('entity', e.entity, 'node', e.node, 'age', extract(epoch FROM statement_timestamp() - e.claimed_at), 'attempts', e.attempts,
			'error', e.last_error, 'interrupted', e.interrupt IS NOT NULL,
			'behind', coalesce((SELECT m.sent_at > e.claimed_at FROM pglatch_turns.messages m WHERE m.mailbox = e.mailbox AND m.entity = e.entity ORDER BY m.number DESC LIMIT 1), false))), '[]')
		FROM (SELECT * FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'running' ORDER BY e.claimed_at LIMIT 20) e),
	'failing', (SELECT coalesce(json_agg(json_build_object('entity', e.entity, 'attempts', e.attempts, 'error', e.last_error)), '[]')
		FROM (SELECT x.* FROM (SELECT * FROM pglatch_turns.entities e WHERE e.mailbox = b.name AND e.state = 'ready' ORDER BY e.ready_at DESC LIMIT 1000) x
			WHERE x.attempts >= $1 ORDER BY x.attempts DESC LIMIT 20) e),
	'stopped', (SELECT coalesce(json_agg(json_build_object('entity', d.entity, 'error', d.error, 'age', extract(epoch FROM statement_timestamp() - d.died_at))), '[]')
		FROM (SELECT d.* FROM (SELECT * FROM pglatch_turns.dead d WHERE d.mailbox = b.name ORDER BY d.died_at DESC LIMIT 1000) d
			JOIN pglatch_turns.entities e ON e.mailbox = d.mailbox AND e.entity = d.entity AND e.state = 'stopped' ORDER BY d.died_at DESC LIMIT 20) d),
	'dead', (SELECT coalesce(json_agg(json_build_object('entity', d.entity, 'attempts', d.attempts, 'error', d.error, 'age', extract(epoch FROM statement_timestamp() - d.died_at))), '[]')
		FROM (SELECT * FROM pglatch_turns.dead d WHERE d.mailbox = b.name AND d.died_at > statement_timestamp() - interval '1 hour' ORDER BY d.died_at DESC LIMIT 20) d)
) ORDER BY b.name), '[]')::text
FROM (SELECT * FROM pglatch_turns.mailboxes ORDER BY name LIMIT 100) b`

// mailboxes are the mailboxes of package turns, as the newest query saw them.
type mailboxes struct {
	at    time.Time // of the newest look for the tables
	there bool
	all   []incident.Mailbox
}

// lookAtMailboxes reads the mailboxes, if there are any and this role may read them. It fails only with the connection:
// what is wrong with their tables must not hide the locks.
func (m *Monitor) lookAtMailboxes(ctx context.Context) {
	b := &m.mailboxes
	b.all = nil
	if time.Since(b.at) >= factsEvery {
		b.at, b.there = time.Now(), false
		if err := m.ownQuery(ctx, mailboxesThereSQL, &b.there); err != nil {
			m.config.Logger.Debug("mailboxes_not_seen", slog.Any("error", err))
		}
	}
	if !b.there {
		return
	}
	var text string
	err := m.ownQuery(ctx, mailboxesSQL, &text, incident.Failing)
	if err == nil {
		b.all, err = parseMailboxes(text)
	}
	if err != nil {
		m.config.Logger.Debug("mailboxes_not_seen", slog.Any("error", err))
	}
}

// ownQuery reads one value in a transaction of its own.
func (m *Monitor) ownQuery(ctx context.Context, sql string, into any, args ...any) error {
	var b pgx.Batch
	b.Queue(settingsSQL)
	b.Queue(sql, args...)
	results := m.conn.SendBatch(ctx, &b)
	defer func() { _ = results.Close() }() // the read below returns its error
	if _, err := results.Exec(); err != nil {
		return err
	}
	return results.QueryRow().Scan(into)
}

// parseMailboxes reads the document of mailboxesSQL.
func parseMailboxes(text string) ([]incident.Mailbox, error) {
	type row struct {
		Entity      string  `json:"entity"`
		Node        string  `json:"node"`
		Age         float64 `json:"age"` // seconds
		Attempts    int     `json:"attempts"`
		Error       string  `json:"error"`
		Interrupted bool    `json:"interrupted"`
		Behind      bool    `json:"behind"`
	}
	var boxes []struct {
		Name      string  `json:"name"`
		Namespace string  `json:"namespace"`
		Ready     int     `json:"ready"`
		Oldest    float64 `json:"oldest"`
		Nodes     []struct {
			Name string `json:"name"`
			Key  string `json:"key"`
		} `json:"nodes"`
		Turns   []row `json:"turns"`
		Failing []row `json:"failing"`
		Stopped []row `json:"stopped"`
		Dead    []row `json:"dead"`
	}
	if err := json.Unmarshal([]byte(text), &boxes); err != nil {
		return nil, err
	}
	all := make([]incident.Mailbox, 0, len(boxes))
	for _, b := range boxes {
		box := incident.Mailbox{Name: b.Name, Ready: b.Ready, Oldest: durationOf(b.Oldest)}
		for _, n := range b.Nodes {
			if key, err := strconv.ParseInt(n.Key, 10, 64); err == nil {
				box.Nodes = append(box.Nodes, incident.MailboxNode{Name: n.Name, Tag: namespace.SingleRaw(key).Tag()})
			}
		}
		name, digits, _ := strings.Cut(b.Namespace, "=")
		number, _ := strconv.Atoi(digits) // 0 is no namespace
		space, err := namespace.New(number, name)
		entities := func(rows []row) (turns []incident.Turn) {
			for _, r := range rows {
				t := incident.Turn{Text: name + "/" + r.Entity, Node: r.Node, Age: durationOf(r.Age), Attempts: r.Attempts, Err: r.Error, Interrupted: r.Interrupted, Behind: r.Behind}
				if err == nil {
					if key, err := space.Text(r.Entity); err == nil {
						t.Tag = key.Tag()
					}
				}
				turns = append(turns, t)
			}
			return turns
		}
		box.Turns, box.Failing, box.Stopped, box.Dead = entities(b.Turns), entities(b.Failing), entities(b.Stopped), entities(b.Dead)
		all = append(all, box)
	}
	return all, nil
}

func durationOf(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
