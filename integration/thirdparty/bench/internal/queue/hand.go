package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pause"
)

// hand is what one writes first: a table, and a loop in one transaction for each message.
type hand struct{ site *Site }

func byHand(ctx context.Context, s *Site) (Queue, error) {
	_, err := s.Pool.Exec(ctx, "CREATE TABLE inbox (id bigserial PRIMARY KEY, entity bigint NOT NULL, n bigint NOT NULL, sent bigint NOT NULL); CREATE INDEX ON inbox (entity, id)")
	return &hand{s}, err
}

func (q *hand) Close() {}

func (q *hand) Fill(ctx context.Context, count, each int) error {
	_, err := q.site.Pool.Exec(ctx, "INSERT INTO inbox (entity, n, sent) SELECT e, n, 0 FROM generate_series(1, $2::bigint) AS n, generate_series(1, $1::bigint) AS e ORDER BY n, e", count, each)
	return err
}

func (q *hand) Send(ctx context.Context, tx pgx.Tx, m Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO inbox (entity, n, sent) VALUES ($1, $2, $3)", m.Entity, m.N, m.Sent)
	return err
}

// handLock takes the lock of an entity that has one of the first messages. The limit inside keeps PostgreSQL from locking
// more entities than one, and a worker from reading all that waits. handTake comes in a later statement: while handLock
// goes on to later messages, the entity's lock can become free, so the message that it found need not be the first.
const (
	handLock = `SELECT entity FROM (SELECT id, entity FROM inbox ORDER BY id LIMIT 1000) AS first WHERE pg_try_advisory_xact_lock(7, entity::int) LIMIT 1`
	handTake = `SELECT id, n, sent FROM inbox WHERE entity = $1 ORDER BY id LIMIT 1`
)

func (q *hand) Serve(ctx context.Context, began func([]Message) (left func()), ended func([]Message)) error {
	var workers sync.WaitGroup
	for range q.site.Workers {
		workers.Go(func() {
			for ctx.Err() == nil {
				if took, err := q.one(context.WithoutCancel(ctx), began, ended); err != nil || !took {
					_ = pause.For(ctx, 5*time.Millisecond)
				}
			}
		})
	}
	workers.Wait()
	return nil
}

func (q *hand) one(ctx context.Context, began func([]Message) (left func()), ended func([]Message)) (took bool, err error) {
	var m Message
	err = pgx.BeginFunc(ctx, q.site.Pool, func(tx pgx.Tx) error {
		var id int64
		if err := tx.QueryRow(ctx, handLock).Scan(&m.Entity); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, handTake, m.Entity).Scan(&id, &m.N, &m.Sent); err != nil {
			return err
		}
		defer began([]Message{m})() // the commit makes the lock free, before its answer is here
		if err := store(ctx, tx, []Message{m}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM inbox WHERE id = $1", id)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		ended([]Message{m})
	}
	return err == nil, err
}
