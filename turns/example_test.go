package turns_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/turns"
)

// A sender's own writes and the message are committed together. The reply and the end of the message are, too.
func ExampleMailbox() {
	receive := func(ctx context.Context, pool *pgxpool.Pool, chat *turns.Mailbox, conversation int64, webhookID string, body []byte) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO history (conversation, body) VALUES ($1, $2)", conversation, body); err != nil {
				return err
			}
			_, err := chat.Send(ctx, tx, conversations.ID(conversation), turns.Message{ID: webhookID, Body: body}) // last
			return err
		})
	}
	serve := func(ctx context.Context, pool *pgxpool.Pool, locker *advisory.Locker) error {
		chat, err := turns.Open(ctx, turns.Config{Pool: pool, Name: "chat", Namespace: conversations, Locker: locker})
		if err != nil {
			return err
		}
		return chat.Serve(ctx, func(ctx context.Context, t *turns.Turn) error {
			reply := fmt.Sprintf("%d messages", len(t.Messages()))
			return t.Commit(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO history (conversation, body) VALUES ($1, $2)", t.Entity().Entity(), reply)
				return err
			})
		})
	}
	_, _ = receive, serve
}

// The rights of a role that only sends.
func ExampleGrants() {
	fmt.Fprint(os.Stdout, turns.Grants("web", ""))
	// Output:
	// GRANT USAGE ON SCHEMA pglatch_turns TO "web";
	// GRANT EXECUTE ON FUNCTION pglatch_turns.put(text, text, text, bytea, text, bigint), pglatch_turns.pglatch_send(text, text, bytea, text, text, bigint), pglatch_turns.outcome(text, text, bigint, text) TO "web";
}
