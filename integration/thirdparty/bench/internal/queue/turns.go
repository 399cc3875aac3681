package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

var entities = namespace.Must(1, "entity")

type mailbox struct {
	*turns.Mailbox
	site   *Site
	locker *advisory.Locker
}

func turnsOf(batch int) func(context.Context, *Site) (Queue, error) {
	return func(ctx context.Context, s *Site) (Queue, error) { return openTurns(ctx, s, batch) }
}

func openTurns(ctx context.Context, s *Site, batch int) (*mailbox, error) {
	locker, err := advisory.Open(ctx, advisory.Config{DSN: s.DSN, LocksPerConn: 100})
	if err != nil {
		return nil, err
	}
	box, err := turns.Open(ctx, turns.Config{
		Pool: s.Pool, Name: "bench", Namespace: entities, Locker: locker, Concurrency: s.Workers, Batch: batch, MaxDepth: 1 << 24,
	})
	if err == nil {
		err = box.Migrate(ctx)
	}
	if err != nil {
		locker.Close()
		return nil, err
	}
	return &mailbox{box, s, locker}, nil
}

func (q *mailbox) Close() { q.locker.Close() }

// fillSQL stores the rows that Send stores, in bulk.
const fillSQL = `WITH entities AS (INSERT INTO pglatch_turns.entities (mailbox, entity, state, ready_at, after)
		SELECT 'bench', e::text, 'ready', clock_timestamp(), 0 FROM generate_series($1::bigint, $2::bigint) AS e)
	INSERT INTO pglatch_turns.messages (mailbox, entity, number, position, id, trace, sent_at, body)
		SELECT 'bench', e::text, nextval('pglatch_turns.number'), n, '', '', clock_timestamp(), convert_to(json_build_object('Entity', e, 'N', n)::text, 'UTF8')
		FROM (SELECT n, e FROM generate_series(1, $3::bigint) AS n, generate_series($1::bigint, $2::bigint) AS e ORDER BY n, e) AS ordered`

func (q *mailbox) Fill(ctx context.Context, count, each int) error {
	return q.fill(ctx, 1, count, each)
}

// fill stores messages of the entities from first to last.
func (q *mailbox) fill(ctx context.Context, first, last, each int) error {
	_, err := q.site.Pool.Exec(ctx, fillSQL, first, last, each)
	return err
}

func (q *mailbox) Send(ctx context.Context, tx pgx.Tx, m Message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	key, err := entities.Text(fmt.Sprint(m.Entity))
	if err == nil {
		_, err = q.Mailbox.Send(ctx, tx, key, turns.Message{Body: body})
	}
	return err
}

func (q *mailbox) Serve(ctx context.Context, began func([]Message) (left func()), ended func([]Message)) error {
	return q.Mailbox.Serve(ctx, func(ctx context.Context, t *turns.Turn) error {
		var all []Message
		for _, m := range t.Messages() {
			var one Message
			if err := json.Unmarshal(m.Body, &one); err != nil {
				return err
			}
			all = append(all, one)
		}
		defer began(all)()
		err := t.Commit(ctx, func(tx pgx.Tx) error { return store(ctx, tx, all) })
		if err == nil {
			ended(all)
		}
		return err
	})
}
