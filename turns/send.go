package turns

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/namespace"
)

// A Message is sent to an entity, and handled by one of its turns, or by several if attempts fail.
type Message struct {
	// ID makes Send idempotent: for Config.KeepIDs, another Send with the same ID to the same entity does
	// nothing and returns the first ticket. Wait can report how a message with an ID ended. "" = none; at most
	// 1000 bytes.
	ID string

	Body []byte

	// Trace is passed on to the handler, for example a W3C traceparent. At most 1000 bytes.
	Trace string

	// Number is the message's place among those of its entity. Send ignores it, and returns the number in
	// the ticket.
	Number int64

	// SentAt is when the message was sent, by the server's clock. Send ignores it.
	SentAt time.Time
}

// A Ticket names a message that was sent.
type Ticket struct {
	Entity string // its text: namespace.Key.Entity
	Number int64
	ID     string
	Again  bool // the ID had been sent before: this is the ticket of that message
}

// A PgxTx has the methods that Send needs of a transaction; pgx.Tx has them. Pools and connections have them
// too, and are refused with ErrNoTransaction.
type PgxTx = pgsession.PgxTx

// A SQLTx has the methods that SendSQL needs of a transaction. *sql.Tx has them, and so do the transactions of
// libraries built on it.
type SQLTx = pgsession.SQLTx

var _ SQLTx = (*sql.Tx)(nil)

// MaxEntities is how many entities one SendMany may name. Each occupies a lock of the server until
// the transaction ends.
const MaxEntities = 1000

// Send sends a message to an entity in the caller's transaction. The message exists once the transaction
// commits.
//
// Until then, other transactions that send to the entity wait, for at most Config.SendWait. So make Send the last statement of a transaction.
// If the transaction sends no statement for 15 seconds after Send, the server ends the session, so that a stopped process does not keep other
// senders out. Transactions that send to several entities in opposite orders can deadlock. PostgreSQL then ends one of them with ErrDeadlock,
// after its deadlock_timeout. To avoid that, use SendMany, which sorts the entities.
//
// After ErrBusy, *LimitError, *TimeoutError and ErrInvalid, nothing was sent, and the transaction is unchanged. The
// same is true of ErrNotReady if the mailbox does not exist. After other errors PostgreSQL has aborted the
// transaction. Above READ COMMITTED, ErrConflict means that the transaction's snapshot is older than the first
// message with this ID.
func (m *Mailbox) Send(ctx context.Context, tx PgxTx, entity namespace.Key, message Message) (Ticket, error) {
	return m.send(ctx, pgsession.FromPgx(tx), entity, message)
}

// SendSQL is Send for database/sql and the libraries built on it.
func (m *Mailbox) SendSQL(ctx context.Context, tx SQLTx, entity namespace.Key, message Message) (Ticket, error) {
	return m.send(ctx, pgsession.FromSQL(tx), entity, message)
}

// An Envelope is a message with the entity that receives it.
type Envelope struct {
	Entity  namespace.Key
	Message Message
}

// SendMany sends messages to at most MaxEntities entities, in an order in which two calls cannot deadlock.
// Messages of one entity keep their order. The tickets are in the order of the envelopes. After an error,
// some messages may have been sent, so the caller must roll the transaction back.
func (m *Mailbox) SendMany(ctx context.Context, tx PgxTx, envelopes []Envelope) ([]Ticket, error) {
	return m.sendMany(ctx, pgsession.FromPgx(tx), envelopes)
}

// SendManySQL is SendMany for database/sql.
func (m *Mailbox) SendManySQL(ctx context.Context, tx SQLTx, envelopes []Envelope) ([]Ticket, error) {
	return m.sendMany(ctx, pgsession.FromSQL(tx), envelopes)
}

func (m *Mailbox) sendMany(ctx context.Context, tx pgsession.Tx, envelopes []Envelope) ([]Ticket, error) {
	order := make([]int, len(envelopes))
	entities := map[string]bool{}
	for i, e := range envelopes {
		order[i] = i
		entities[e.Entity.Entity()] = true
	}
	if len(entities) > MaxEntities {
		return nil, &LimitError{Entity: envelopes[0].Entity.Entity(), What: "entities", Limit: strconv.Itoa(MaxEntities)}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return strings.Compare(envelopes[a].Entity.Entity(), envelopes[b].Entity.Entity())
	})
	tickets := make([]Ticket, len(envelopes))
	for _, i := range order {
		ticket, err := m.send(ctx, tx, envelopes[i].Entity, envelopes[i].Message)
		if err != nil {
			return nil, err
		}
		tickets[i] = ticket
	}
	return tickets, nil
}

// putSQL sends a message. The body is in hexadecimal digits, as all drivers and modes of the protocol take it. putMarkedSQL
// stores the answer behind a mark, for a transaction that only a second statement proves.
const (
	putSQL = `SELECT pglatch_turns.put($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text, pg_catalog.decode($4::pg_catalog.text, 'hex'), $5::pg_catalog.text, $6::pg_catalog.int8)`

	putMarkedSQL = `SELECT pg_catalog.set_config('pglatch.outcome', pg_catalog.concat($1::pg_catalog.text, pglatch_turns.put($2::pg_catalog.text, $3::pg_catalog.text,
	$4::pg_catalog.text, pg_catalog.decode($5::pg_catalog.text, 'hex'), $6::pg_catalog.text, $7::pg_catalog.int8)), true)`
)

func (m *Mailbox) send(ctx context.Context, tx pgsession.Tx, key namespace.Key, message Message) (Ticket, error) {
	entity, err := m.entityOf(key)
	if err != nil {
		return Ticket{}, err
	}
	for what, text := range map[string]string{"the ID": message.ID, "the trace": message.Trace} {
		if len(text) > maxText || strings.ToValidUTF8(text, "") != text || strings.Contains(text, "\x00") {
			return Ticket{}, fmt.Errorf("%w: %s has more than %d bytes, a NUL byte, or is not UTF-8", ErrInvalid, what, maxText)
		}
	}
	var answer string
	err = txguard.Sent(ctx, tx, func() (err error) {
		args := []any{m.config.Name, entity, message.ID, hex.EncodeToString(message.Body), message.Trace, m.config.SendWait.Milliseconds()}
		var sent bool
		if answer, sent, err = pgsession.TxOnce(ctx, tx, putSQL, args...); !sent {
			answer, err = pgsession.TxAsk(ctx, tx, putMarkedSQL, args...)
		}
		return err
	})
	if err != nil {
		return Ticket{}, failed(err)
	}
	word, rest, _ := strings.Cut(answer, " ")
	switch word {
	case "sent", "again":
		number, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return Ticket{}, fmt.Errorf("turns: answer of the server: %w", err)
		}
		return Ticket{Entity: entity, Number: number, ID: message.ID, Again: word == "again"}, nil
	case "bytes", "depth", "total":
		return Ticket{}, &LimitError{Entity: entity, What: word, Limit: rest}
	case "timeout":
		return Ticket{}, &TimeoutError{Entity: entity, Waited: m.config.SendWait}
	case "occupied":
		return Ticket{}, fmt.Errorf("%w: %s", ErrBusy, key)
	case "unknown":
		return Ticket{}, fmt.Errorf("%w: there is no mailbox %s: make it with Mailbox.Migrate, or serve it", ErrNotReady, m.config.Name)
	}
	return Ticket{}, fmt.Errorf("%w: an entity has at most %d bytes", ErrInvalid, maxText)
}

// maxText limits an entity, an ID and a trace, in bytes. The schema has it too.
const maxText = 1000
