package turns

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A found is what an entity's turn can take.
type found struct {
	messages    []Message
	age, newest time.Duration // since its first and its last message was sent
}

// A querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// take reads the first messages of entities, behind a number each, and at most so many.
func (m *Mailbox) take(ctx context.Context, db querier, entities []string, after, most []int64) (map[string]*found, error) {
	rows, err := db.Query(ctx, `SELECT entity, number, id, trace, sent_at, body, age_ms, newest_ms
		FROM pglatch_turns.take($1::pg_catalog.text, $2::pg_catalog.text[], $3::pg_catalog.int8[], $4::pg_catalog.int8[])`, m.config.Name, entities, after, most)
	if err != nil {
		return nil, err
	}
	type row struct {
		entity      string
		message     Message
		age, newest int64 // milliseconds
	}
	list, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (x row, err error) {
		m := &x.message
		err = r.Scan(&x.entity, &m.Number, &m.ID, &m.Trace, &m.SentAt, &m.Body, &x.age, &x.newest)
		return x, err
	})
	if err != nil {
		return nil, err
	}
	all := map[string]*found{}
	for _, entity := range entities {
		all[entity] = &found{}
	}
	for _, x := range list {
		f := all[x.entity]
		if len(f.messages) == 0 {
			f.age, f.newest = time.Duration(x.age)*time.Millisecond, time.Duration(x.newest)*time.Millisecond
		}
		f.messages = append(f.messages, x.message)
	}
	return all, nil
}

// claim takes up to most entities that are ready, and what their turns begin with. One commit records the
// attempts of all.
func (s *server) claim(ctx context.Context, node string, most int) (claims []claimed, all map[string]*found, err error) {
	err = s.m.inTx(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT entity, token, attempts, after, last_error
			FROM pglatch_turns.claim($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8, $4::pg_catalog.text::pg_catalog.interval)`,
			s.m.config.Name, node, int64(most), interval(awake))
		if err != nil {
			return err
		}
		if claims, err = pgx.CollectRows(rows, pgx.RowToStructByPos[claimed]); err != nil || len(claims) == 0 {
			return err
		}
		var entities []string
		var after, limits []int64
		for _, c := range claims {
			entities, after = append(entities, c.Entity), append(after, c.After)
			limit := int64(s.m.config.Batch)
			if c.Attempts > 1 {
				limit = 1 // the bad message of a batch becomes a dead letter alone
			}
			limits = append(limits, limit)
		}
		all, err = s.m.take(ctx, tx, entities, after, limits)
		return err
	})
	if err != nil {
		return nil, nil, err // if the commit took effect, a look finds more turns than there are here
	}
	return claims, all, nil
}

// arrayOf returns the numbers of messages as PostgreSQL reads an array.
func arrayOf(messages []Message) string {
	texts := make([]string, 0, len(messages))
	for _, m := range messages {
		texts = append(texts, strconv.FormatInt(m.Number, 10))
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// hexOrNone returns a value in hexadecimal digits, "-" for nil.
func hexOrNone(value []byte) string {
	if value == nil {
		return "-"
	}
	return hex.EncodeToString(value)
}
