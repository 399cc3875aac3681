package turns

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/namespace"
)

// A DeadLetter is a message that was tried MaxAttempts times.
type DeadLetter struct {
	Entity   string
	Message  Message
	Attempts int
	Error    string // of the last attempt
	DiedAt   time.Time
}

// DeadLetters lists up to limit dead letters whose number is greater than after, in order: those of an entity, or
// those of the mailbox if entity is the zero Key. Pass the number of the last one as after to the next call.
func (m *Mailbox) DeadLetters(ctx context.Context, entity namespace.Key, after int64, limit int) ([]DeadLetter, error) {
	text := ""
	if entity.Valid() {
		var err error
		if text, err = m.entityOf(entity); err != nil {
			return nil, err
		}
	}
	rows, err := m.config.Pool.Query(ctx, `SELECT entity, id, body, trace, number, sent_at, attempts, error, died_at FROM pglatch_turns.dead
		WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text AND ($2::pg_catalog.text OPERATOR(pg_catalog.=) '' OR entity OPERATOR(pg_catalog.=) $2::pg_catalog.text)
			AND number OPERATOR(pg_catalog.>) $3::pg_catalog.int8 ORDER BY number LIMIT $4::pg_catalog.int8`, m.config.Name, text, after, int64(limit))
	if err != nil {
		return nil, failed(err)
	}
	letters, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DeadLetter, err error) {
		err = row.Scan(&d.Entity, &d.Message.ID, &d.Message.Body, &d.Message.Trace, &d.Message.Number, &d.Message.SentAt, &d.Attempts, &d.Error, &d.DiedAt)
		return d, err
	})
	return letters, failed(err)
}

// Retry puts a dead letter back in the place that its number gives it. If it had stopped its entity, the
// entity continues. It returns ErrNotFound if there is no such dead letter.
func (m *Mailbox) Retry(ctx context.Context, number int64) error {
	return m.letter(ctx, `SELECT pglatch_turns.retry_dead($1::pg_catalog.text, $2::pg_catalog.int8)`, number)
}

// Skip deletes a dead letter. If it had stopped its entity, the entity continues with the next message. It
// returns ErrNotFound if there is no such dead letter.
func (m *Mailbox) Skip(ctx context.Context, number int64) error {
	return m.letter(ctx, `SELECT pglatch_turns.skip_dead($1::pg_catalog.text, $2::pg_catalog.int8)`, number)
}

func (m *Mailbox) letter(ctx context.Context, sql string, number int64) error {
	did, err := ask[bool](ctx, m, sql, number)
	if err == nil && !did {
		err = fmt.Errorf("%w: number %d", ErrNotFound, number)
	}
	return err
}

// Purge deletes all messages and dead letters of an entity, and returns how many. A running turn of the entity is
// then stale. Purge waits for senders of the entity until ctx ends.
func (m *Mailbox) Purge(ctx context.Context, entity namespace.Key) (gone int64, err error) {
	text, err := m.entityOf(entity)
	if err != nil {
		return 0, err
	}
	return ask[int64](ctx, m, `SELECT pglatch_turns.purge($1::pg_catalog.text, $2::pg_catalog.text)`, text)
}
