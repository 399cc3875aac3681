package turns_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

func TestMain(m *testing.M) {
	proctest.Play(serving, serveProcess)
	pgtest.Main(m)
}

var conversations = namespace.Must(14, "conversation")

// key is the key of a conversation.
func key(tb testing.TB, id string) namespace.Key {
	tb.Helper()
	k, err := conversations.Text(id)
	require.NoError(tb, err)
	return k
}

func newPool(tb testing.TB, dsn string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), dsn)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

func newLocker(tb testing.TB, dsn string) *advisory.Locker {
	tb.Helper()
	locker, err := advisory.Open(tb.Context(), advisory.Config{DSN: dsn, LocksPerConn: 100})
	require.NoError(tb, err)
	tb.Cleanup(locker.Close)
	return locker
}

// A bench is a database with a mailbox.
type bench struct {
	*turns.Mailbox
	dsn    string
	pool   *pgxpool.Pool
	config turns.Config
}

// newBench makes the mailbox "chat" in a database of its own, with the changes of a configuration.
func newBench(tb testing.TB, change ...func(*turns.Config)) *bench {
	tb.Helper()
	dsn := pgtest.DSN(tb)
	pool := newPool(tb, dsn+"&pool_max_conns=20")
	c := turns.Config{Pool: pool, Name: "chat", Namespace: conversations, Locker: newLocker(tb, dsn), Pause: time.Millisecond, MaxPause: time.Millisecond}
	for _, f := range change {
		f(&c)
	}
	box, err := turns.Open(tb.Context(), c)
	require.NoError(tb, err)
	require.NoError(tb, box.Migrate(tb.Context()))
	return &bench{box, dsn, pool, c}
}

// send sends a text in a transaction of its own.
func (b *bench) send(tb testing.TB, entity, text string, id ...string) (ticket turns.Ticket) {
	tb.Helper()
	require.NoError(tb, pgx.BeginFunc(tb.Context(), b.pool, func(tx pgx.Tx) (err error) {
		ticket, err = b.Send(tb.Context(), tx, key(tb, entity), turns.Message{ID: strings.Join(id, ""), Body: []byte(text)})
		return err
	}))
	return ticket
}

// serve serves until stop, or the end of the test.
func (b *bench) serve(tb testing.TB, handler turns.Handler) (stop func()) {
	tb.Helper()
	return serve(tb, b.Mailbox, handler)
}

func serve(tb testing.TB, box *turns.Mailbox, handler turns.Handler) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- box.Serve(ctx, handler) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(tb, <-done)
	})
	tb.Cleanup(stop)
	return stop
}

// texts are the bodies of messages.
func texts(messages []turns.Message) string {
	all := make([]string, 0, len(messages))
	for _, m := range messages {
		all = append(all, string(m.Body))
	}
	return strings.Join(all, " ")
}

func exec(tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	_, err := pool.Exec(context.WithoutCancel(tb.Context()), sql, args...)
	require.NoError(tb, err)
}

func one[T any](tb testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	tb.Helper()
	require.NoError(tb, pool.QueryRow(tb.Context(), sql, args...).Scan(&v))
	return v
}

// without runs the schema again with parts of its functions replaced: the control of a test.
func without(tb testing.TB, pool *pgxpool.Pool, parts map[string]string) {
	tb.Helper()
	sql := turns.Schema()
	for part, instead := range parts {
		require.Contains(tb, sql, part)
		sql = strings.ReplaceAll(sql, part, instead)
	}
	exec(tb, pool, sql, pgx.QueryExecModeSimpleProtocol)
}

// logged is the table in which handlers write what they did.
func (b *bench) logged(tb testing.TB) {
	tb.Helper()
	exec(tb, b.pool, "CREATE TABLE log (n bigserial, entity text, body text)")
}

func write(ctx context.Context, t *turns.Turn) func(tx pgx.Tx) error {
	return func(tx pgx.Tx) error {
		for _, m := range t.Messages() {
			if _, err := tx.Exec(ctx, "INSERT INTO log (entity, body) VALUES ($1, $2)", t.Entity().Entity(), string(m.Body)); err != nil {
				return fmt.Errorf("log: %w", err)
			}
		}
		return nil
	}
}
