package turns

import (
	"cmp"
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A found contains the messages that an entity's turn can take.
type found struct {
	messages    []Message
	age, newest time.Duration // since its first and its last message was sent
}

const takeSQL = `SELECT entity, number, id, trace, sent_at, body, age_ms, newest_ms
	FROM pglatch_turns.take($1::pg_catalog.text, $2::pg_catalog.text[], $3::pg_catalog.int8[], $4::pg_catalog.int8[])`

// take reads the first messages of each entity after a given number, up to a given count.
func (m *Mailbox) take(ctx context.Context, entities []string, after, most []int64) (map[string]*found, error) {
	rows, err := m.config.Pool.Query(ctx, takeSQL, m.config.Name, entities, after, most)
	if err != nil {
		return nil, err
	}
	return taken(rows, entities)
}

// taken reads the rows of takeSQL.
func taken(rows pgx.Rows, entities []string) (map[string]*found, error) {
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
// attempts of all. The transaction is two messages to the server, because it is a part of each turn's latency.
func (s *server) claim(ctx context.Context, most int) (claims []claimed, all map[string]*found, err error) {
	if first := s.first.Swap(0); first > 0 {
		s.since = min(s.since, first)
	}
	err = s.m.config.Pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { // after an error, the pool closes the connection
		var first, second pgx.Batch
		first.Queue(beginSQL)
		first.Queue(`SELECT entity, token, attempts, after, last_error, ready
			FROM pglatch_turns.claim($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8, $4::pg_catalog.text::pg_catalog.interval, $5::pg_catalog.int8)`,
			s.m.config.Name, s.node, int64(most), interval(awake), s.since).Query(func(rows pgx.Rows) (err error) {
			claims, err = pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
			return err
		})
		if err := conn.SendBatch(ctx, &first).Close(); err != nil {
			return err
		}
		if len(claims) > 0 {
			entities, after, limits := s.wants(claims)
			second.Queue(takeSQL, s.m.config.Name, entities, after, limits).Query(func(rows pgx.Rows) (err error) {
				all, err = taken(rows, entities)
				return err
			})
		}
		second.Queue(commitSQL)
		// If ctx ends during the commit, the turns are known, and are given back without an attempt.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementBound)
		defer cancel()
		return conn.SendBatch(ctx, &second).Close()
	})
	if err != nil {
		s.doubtUntil = time.Now().Add(allEvery) // if the commit took effect, a look at all turns finds more than there are here
		return nil, nil, failed(err)
	}
	if len(claims) > 0 {
		last := slices.MaxFunc(claims, func(a, b claimed) int { return cmp.Compare(a.Ready, b.Ready) })
		s.since = last.Ready - behind.Microseconds()
	}
	return claims, all, nil
}

// wants returns what the turns of claims take: at most so many messages of each entity, behind a number.
func (s *server) wants(claims []claimed) (entities []string, after, most []int64) {
	for _, c := range claims {
		limit := int64(s.m.config.Batch)
		if c.Attempts > 1 {
			limit = 1 // the bad message of a batch becomes a dead letter alone
		}
		entities, after, most = append(entities, c.Entity), append(after, c.After), append(most, limit)
	}
	return entities, after, most
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
