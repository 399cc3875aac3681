package chat

import (
	"context"
	_ "embed" // the schema
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// The kinds of things that the program locks. Code that takes the lock of a conversation by hand excludes its turns.
var (
	Conversations = namespace.Must(8, "conversation")
	schemas       = namespace.Must(9, "schema")
)

//go:embed schema.sql
var schema string

// LogThinking is the message that a replica logs when a turn calls the model.
const LogThinking = "thinking"

// A Config describes a replica.
type Config struct {
	DSN     string
	Replica string // its name
	Logger  *slog.Logger

	// Unsafe saves replies as soon as they begin, and not in the commit of the turn: the control of the demo.
	Unsafe bool
}

// A Service is one replica.
type Service struct {
	config Config
	pool   *pgxpool.Pool
	locker *advisory.Locker
	box    *turns.Mailbox
}

// Open connects to the database, and makes the tables if they are not there.
func Open(ctx context.Context, config Config) (*Service, error) {
	pool, err := pgxpool.New(ctx, config.DSN)
	if err != nil {
		return nil, err
	}
	// Locks of many turns are on a few connections beside the pool.
	locker, err := advisory.Open(ctx, advisory.Config{DSN: config.DSN, LocksPerConn: 1000, ApplicationName: config.Replica})
	if err != nil {
		pool.Close()
		return nil, err
	}
	s := &Service{config: config, pool: pool, locker: locker}
	if err := s.prepare(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Service) prepare(ctx context.Context) (err error) {
	s.box, err = turns.Open(ctx, turns.Config{
		Pool: s.pool, Locker: s.locker, Name: "chat", Namespace: Conversations, Logger: s.config.Logger,
		Batch: 100, // a turn takes all messages that wait
	})
	if err != nil {
		return err
	}
	if err := s.box.Migrate(ctx); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { // replicas that start at once take turns
		if err := advisory.LockTx(ctx, tx, advisory.TxOptions{Wait: time.Minute}, schemas.ID(1)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
}

// Close ends the connections.
func (s *Service) Close() {
	s.locker.Close()
	s.pool.Close()
}

// Serve answers messages, and requests on listener, until ctx ends.
func (s *Service) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Minute}
	var listens sync.WaitGroup
	listens.Go(func() { _ = server.Serve(listener) })
	err := s.box.Serve(ctx, s.turn)
	_ = server.Shutdown(context.WithoutCancel(ctx))
	listens.Wait()
	return err
}

// send puts a message into its conversation. The same ID again is the same message.
func (s *Service) send(ctx context.Context, conversation namespace.Key, id, text string) (ticket turns.Ticket, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// Other writes of the request come here. Send is the last one.
		ticket, err = s.box.Send(ctx, tx, conversation, turns.Message{ID: id, Body: []byte(text)})
		return err
	})
	return ticket, err
}

// stop ends the answer that is being written, on whatever replica.
func (s *Service) stop(ctx context.Context, conversation namespace.Key) error {
	return s.box.Interrupt(ctx, conversation, "the user pressed stop")
}

// turn answers the messages of one conversation.
func (s *Service) turn(ctx context.Context, t *turns.Turn) error {
	if _, err := t.More(ctx); err != nil { // what came while the turn waited for the lock of the conversation
		return err
	}
	if s.config.Unsafe {
		if err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return s.save(ctx, tx, t, "…") }); err != nil {
			return err
		}
	}
	reply, err := s.answer(ctx, t)
	if errors.Is(context.Cause(ctx), turns.ErrInterrupted) { // what was written so far is the reply
		s.config.Logger.Info("stopped", slog.String("conversation", t.Entity().Entity()))
		reply, err, ctx = "[stopped] "+reply, nil, context.WithoutCancel(ctx)
	}
	if err != nil {
		return err // the turn comes again
	}
	err = t.Commit(ctx, func(tx pgx.Tx) error {
		if s.config.Unsafe {
			return nil
		}
		return s.save(ctx, tx, t, reply)
	})
	if err == nil {
		s.config.Logger.Info("replied", slog.String("conversation", t.Entity().Entity()), slog.Int("messages", len(t.Messages())))
	}
	return err
}

// save stores the reply to all messages that the turn has.
func (s *Service) save(ctx context.Context, tx pgx.Tx, t *turns.Turn, reply string) error {
	var ids []string
	var numbers []int64
	for _, m := range t.Messages() {
		ids, numbers = append(ids, m.ID), append(numbers, m.Number)
	}
	_, err := tx.Exec(ctx, `INSERT INTO replies (conversation, ids, numbers, reply, token, replica) VALUES ($1, $2, $3, $4, $5, $6)`,
		t.Entity().Entity(), ids, numbers, reply, t.Token(), s.config.Replica)
	return err
}

// answer stands for the call of a model. A message that begins with "think" takes until the user adds something.
func (s *Service) answer(ctx context.Context, t *turns.Turn) (string, error) {
	for {
		messages := t.Messages()
		texts := make([]string, 0, len(messages))
		for _, m := range messages {
			texts = append(texts, string(m.Body))
		}
		reply := fmt.Sprintf("You said %q.", strings.Join(texts, " / "))
		if !strings.HasPrefix(texts[len(texts)-1], "think") {
			return reply, nil
		}
		s.config.Logger.Info(LogThinking, slog.String("conversation", t.Entity().Entity()), slog.Int("attempt", t.Attempt()))
		if err := s.steered(ctx, t); err != nil {
			return reply, err
		}
	}
}

// steered waits until the user adds a message to the running turn.
func (s *Service) steered(ctx context.Context, t *turns.Turn) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done(): // stopped by the user, lost, or shut down
			return context.Cause(ctx)
		case <-look.C:
		}
		if more, err := t.More(ctx); err != nil || len(more) > 0 {
			return err
		}
	}
}
