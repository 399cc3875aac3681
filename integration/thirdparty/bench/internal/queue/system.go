package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Message has a number that rises for each entity.
type Message struct {
	Entity, N int64
	Sent      int64 // when its transaction began to commit, in nanoseconds of this process's clock
}

// A Site is what a system works on: a database of its own.
type Site struct {
	DSN     string
	Pool    *pgxpool.Pool
	Workers int
	began   time.Time
}

// A System handles messages.
type System struct {
	Name    string
	Ordered bool // it promises one at a time for each entity, in order
	// Open makes what the system needs in an empty database.
	Open func(ctx context.Context, s *Site) (Queue, error)
}

// A Queue is a system at work.
type Queue interface {
	// Fill stores messages of entities, numbers 1 to each, in bulk.
	Fill(ctx context.Context, entities, each int) error
	// Send sends one message in a transaction.
	Send(ctx context.Context, tx pgx.Tx, m Message) error
	// Serve handles messages until ctx ends. A handler calls began, and left before others may handle the entity, also if it
	// failed. store writes the rows of its messages. ended is called after their commit.
	Serve(ctx context.Context, began func([]Message) (left func()), ended func([]Message)) error
	Close()
}

// store writes the row of each message.
func store(ctx context.Context, tx pgx.Tx, messages []Message) error {
	for _, m := range messages {
		if _, err := tx.Exec(ctx, "INSERT INTO handled (entity, n) VALUES ($1, $2)", m.Entity, m.N); err != nil {
			return err
		}
	}
	return nil
}

// Systems are all that are compared. The second one is what others are compared with. The usual statement by hand, which
// takes one row FOR UPDATE SKIP LOCKED under an advisory lock, is not among them: it breaks the order of an entity.
var Systems = []System{
	{"turns, one message a turn", true, turnsOf(1)},
	{"River, JobCompleteTx", false, riverOf(riverConfig{completeTx: true})},
	{"turns, ten messages a turn", true, turnsOf(10)},
	{"River, plain", false, riverOf(riverConfig{})},
	{"River, riverlock, JobCompleteTx", false, riverOf(riverConfig{completeTx: true, lock: true})},
	{"by hand: advisory lock, first message", true, byHand},
}
