//go:build mailboxes

package main

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// later are the roles that the version in the file base does not have. laterTables and laterRefusals are its tables and conditions.
var (
	later         = map[string]newRole{"mailbox": newMailbox}
	laterRefusals = []func(error) bool{is(turns.ErrNotReady)}
	laterTables   = map[string]func(*tables) (migrate func(context.Context) error, script string, err error){"mailboxes": mailboxTables}
)

// A mailbox sends and serves, one turn at a time.
type mailbox struct {
	*turns.Mailbox
	name   string
	pool   *pgxpool.Pool
	locker *advisory.Locker
	stop   context.CancelFunc
	served chan error
}

// newMailbox has as argument the name of the node.
func newMailbox(ctx context.Context, dsn string, args []string) (role, error) {
	m := &mailbox{name: args[0], stop: func() {}}
	var err error
	if m.pool, err = connect(ctx, dsn); err != nil {
		return nil, err
	}
	if m.locker, err = advisory.Open(ctx, advisory.Config{DSN: dsn, LocksPerConn: 10}); err != nil {
		return nil, err
	}
	m.Mailbox, err = turns.Open(ctx, turns.Config{
		Pool: m.pool, Locker: m.locker, Name: "box", Namespace: entities, Node: m.name, Concurrency: 1, Pause: time.Millisecond, MaxPause: time.Millisecond,
	})
	return m, err
}

func mailboxTables(t *tables) (func(context.Context) error, string, error) {
	m, err := turns.Open(context.Background(), turns.Config{Pool: t.pool, Name: "box", Namespace: entities})
	if err != nil {
		return nil, "", err
	}
	return m.Migrate, turns.Schema(), nil
}

func (m *mailbox) close() {
	m.stop()
	m.locker.Close()
	m.pool.Close()
}

func (m *mailbox) answer(ctx context.Context, verb string, args []string) (string, error) {
	switch verb {
	case "serve":
		m.served = make(chan error, 1)
		ctx, m.stop = context.WithCancel(ctx)
		go func() { m.served <- m.Serve(ctx, m.handle) }()
		return "serves", nil
	case "stop":
		m.stop()
		return "stopped", <-m.served
	case "use":
		return "used", m.use(ctx)
	}
	key, err := entities.Text(args[0])
	if err != nil {
		return "", err
	}
	switch verb {
	case "send":
		_, err := m.send(ctx, key, args[1])
		return "sent", err
	case "interrupt":
		return "interrupted", m.Interrupt(ctx, key, "of the other version")
	}
	return "", unknown(verb)
}

func (m *mailbox) send(ctx context.Context, key namespace.Key, text string) (ticket turns.Ticket, err error) {
	err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) (err error) {
		ticket, err = m.Send(ctx, tx, key, turns.Message{ID: text, Body: []byte(text)})
		return err
	})
	return ticket, err
}

// use serves, sends a message, and waits until it is handled.
func (m *mailbox) use(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { end(m.Serve(ctx, func(context.Context, *turns.Turn) error { return nil })) }()
	key, err := entities.Text("used")
	if err != nil {
		return err
	}
	for {
		ticket, err := m.send(ctx, key, m.name)
		if err == nil {
			_, err = m.Wait(ctx, ticket)
			return cmp.Or(context.Cause(ctx), err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond): // Serve is about to make the mailbox
		}
	}
}

// handle stores each message. The first attempt of "wait" lasts until somebody interrupts it.
func (m *mailbox) handle(ctx context.Context, t *turns.Turn) error {
	if string(t.Messages()[0].Body) == "wait" && t.Attempt() == 1 {
		<-ctx.Done()
	}
	ctx = context.WithoutCancel(ctx)
	return t.Commit(ctx, func(tx pgx.Tx) error {
		for _, message := range t.Messages() {
			if _, err := tx.Exec(ctx, "INSERT INTO handled (entity, message, node) VALUES ($1, $2, $3)", t.Entity().Entity(), string(message.Body), m.name); err != nil {
				return err
			}
		}
		return nil
	})
}
