package turns

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/namespace"
)

// An EntityState is the state of an entity of a mailbox.
type EntityState string

// The states of an entity.
const (
	EntityIdle    EntityState = "idle"    // it has no message
	EntityReady   EntityState = "ready"   // its messages wait for a free worker
	EntityPaused  EntityState = "paused"  // its messages wait: after a failed attempt, for Config.Quiet, or for the mutex
	EntityRunning EntityState = "running" // a turn runs
	EntityStopped EntityState = "stopped" // a dead letter stopped it (OnDead)
)

// An Entity is what a mailbox knows about one entity at one moment.
type Entity struct {
	Entity      string // its text: namespace.Key.Entity
	State       EntityState
	Messages    int64  // that wait, including those of the running turn
	Attempts    int    // in a row without a commit, including the running one
	Node        string // that has the turn
	LastError   string // of the last attempt without a commit
	Interrupted string // the reason why somebody interrupted the running turn

	Since  time.Time     // if running, the time of its claim; if ready or paused, when it became or will become ready; by the server's clock
	Age    time.Duration // the time since Since; negative until the entity is ready
	Oldest time.Duration // the time since its first message was sent
}

// Entities lists up to limit entities in a state, beginning with those that have been in it for longest. It lists
// none for EntityIdle. The cost grows with the number of entities in the state, not with their messages.
func (m *Mailbox) Entities(ctx context.Context, state EntityState, limit int) ([]Entity, error) {
	return m.entities(ctx, state, "", limit)
}

// Entity returns what the mailbox knows about one entity.
func (m *Mailbox) Entity(ctx context.Context, entity namespace.Key) (Entity, error) {
	text, err := m.entityOf(entity)
	if err != nil {
		return Entity{}, err
	}
	all, err := m.entities(ctx, "", text, 1)
	if err != nil || len(all) == 0 {
		return Entity{Entity: text, State: EntityIdle}, err
	}
	return all[0], nil
}

func (m *Mailbox) entities(ctx context.Context, state EntityState, entity string, limit int) ([]Entity, error) {
	rows, err := m.config.Pool.Query(ctx, `SELECT entity, state, attempts, node, since, age_ms, messages, oldest_ms, last_error, interrupt
		FROM pglatch_turns.list_entities($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.int8)`, m.config.Name, string(state), entity, int64(limit))
	if err != nil {
		return nil, failed(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entity, err error) {
		var state string
		var age, oldest int64 // milliseconds
		err = row.Scan(&e.Entity, &state, &e.Attempts, &e.Node, &e.Since, &age, &e.Messages, &oldest, &e.LastError, &e.Interrupted)
		e.State, e.Age, e.Oldest = EntityState(state), time.Duration(age)*time.Millisecond, time.Duration(oldest)*time.Millisecond
		return e, err
	})
	return all, failed(err)
}

// Messages lists up to limit waiting messages of an entity, in order, including those of its running turn. Their
// numbers are greater than after. It takes none of them. Pass the number of the last one as after to the next
// call.
func (m *Mailbox) Messages(ctx context.Context, entity namespace.Key, after int64, limit int) ([]Message, error) {
	text, err := m.entityOf(entity)
	if err != nil {
		return nil, err
	}
	all, err := m.take(ctx, []string{text}, []int64{after}, []int64{int64(limit)})
	if err != nil {
		return nil, failed(err)
	}
	return all[text].messages, nil
}

// A Name is the name of a mailbox, and the namespace of its entities.
type Name struct {
	Name      string
	Namespace namespace.Namespace
}

// Names lists the mailboxes of a database, sorted by name.
func Names(ctx context.Context, pool *pgxpool.Pool) ([]Name, error) {
	rows, err := pool.Query(ctx, `SELECT name, namespace FROM pglatch_turns.mailboxes ORDER BY name`)
	if err != nil {
		return nil, failed(err)
	}
	names, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Name, err error) {
		var text string
		if err := row.Scan(&n.Name, &text); err != nil {
			return n, err
		}
		name, digits, _ := strings.Cut(text, "=")
		number, err := strconv.Atoi(digits)
		if err == nil {
			n.Namespace, err = namespace.New(number, name)
		}
		if err != nil {
			err = fmt.Errorf("the mailbox %s has the namespace %q: %w", n.Name, text, err)
		}
		return n, err
	})
	return names, failed(err)
}
