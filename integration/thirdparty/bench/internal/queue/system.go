// Package queue has systems that handle messages of entities, and measures them doing the same work. Each message
// becomes one row of a table, in the transaction that ends the message.
package queue

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
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

// newSite makes a database on a server. settings are those of its pool. remove drops the database.
func newSite(ctx context.Context, admin string, workers int, settings string) (_ *Site, remove func(), err error) {
	dsn, err := pgserver.CreateDatabase(ctx, admin)
	if err != nil {
		return nil, nil, err
	}
	s, err := siteOn(ctx, dsn, workers, settings)
	drop := func() { _ = pgserver.DropDatabase(context.WithoutCancel(ctx), admin, dsn) }
	if err != nil {
		drop()
		return nil, nil, err
	}
	return s, func() { s.Pool.Close(); drop() }, nil
}

// siteOn opens a pool on a database.
func siteOn(ctx context.Context, dsn string, workers int, settings string) (*Site, error) {
	pool, err := pgxpool.New(ctx, dsn+"&"+settings)
	return &Site{DSN: dsn, Pool: pool, Workers: workers, began: time.Now()}, err
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

// inBatches calls flush with the messages of entities, numbers 1 to each, at most 5,000 at a time.
func inBatches(entities, each int, flush func([]Message) error) error {
	var all []Message
	for n := range each {
		for e := range entities {
			all = append(all, Message{Entity: int64(e + 1), N: int64(n + 1)})
			if len(all) == 5000 || n == each-1 && e == entities-1 {
				if err := flush(all); err != nil {
					return err
				}
				all = all[:0]
			}
		}
	}
	return nil
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
