//go:build integration

package turns

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/turns"
)

// runCommand runs the statements of docs/how-to/incidents-of-turns.md.
func (b *bench) runCommand(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/incidents-of-turns.md")
	require.NoError(t, err)
	statements := regexp.MustCompile(`(?m)^UPDATE .*;$`).FindAllString(string(page), -1)
	require.Len(t, statements, 2)
	for _, s := range statements {
		b.Exec(s)
	}
}

func TestEntitiesThatWereReadyBeforeTheClockWasSetBackWaitForItOrForTheCommand(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"until the command": false, "control: until the clock shows that time": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := service.NewClock(t)
			clock.Set(t, time.Hour) // ahead by mistake
			b := newBench(t, dbtest.Open(t, pgtest.StartServer(t, pgserver.Options{Env: clock.Env}).DSN("")))
			locker, err := advisory.Open(t.Context(), advisory.Config{DSN: b.DSN, LocksPerConn: 100})
			require.NoError(t, err)
			t.Cleanup(locker.Close)
			config := mailbox(b.pool)
			config.Locker, config.Concurrency, config.Batch, config.Pause, config.MaxPause = locker, 1, 1, time.Hour, time.Hour
			box, err := turns.Open(t.Context(), config)
			require.NoError(t, err)

			failed, finish, handled := false, make(chan struct{}), make(chan string, 10)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() {
				served <- box.Serve(ctx, func(ctx context.Context, turn *turns.Turn) error {
					entity := turn.Entity().Entity()
					if entity == "retried" && !failed { // one turn at a time
						failed = true
						return errors.New("no model")
					}
					if entity == "running" {
						handled <- "begun"
						<-finish
					}
					handled <- entity
					return turn.Commit(ctx, func(pgx.Tx) error { return nil })
				})
			}()
			t.Cleanup(func() { cancel(); assert.NoError(t, <-served) })
			send := func(entity string) error {
				key, err := entities.Text(entity)
				require.NoError(t, err)
				return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
					_, err := box.Send(t.Context(), tx, key, turns.Message{Body: []byte("hello")})
					return err
				})
			}
			next := func() string { return await.Receive(t, await.Patience, handled) }
			ready := func() []string {
				return dbtest.Ask[[]string](b, "SELECT array_agg(entity ORDER BY entity) FROM pglatch_turns.entities WHERE state = 'ready'")
			}
			require.NoError(t, send("retried"))
			b.Until(func() bool {
				return slices.Equal(ready(), []string{"retried"}) && dbtest.Ask[int](b, "SELECT attempts FROM pglatch_turns.entities") == 1
			})
			require.NoError(t, send("running"))
			require.Equal(t, "begun", next())
			require.NoError(t, send("waiting"))

			clock.Set(t, 0)
			require.NoError(t, send("new"))
			close(finish)
			require.Equal(t, "running", next(), "a turn goes on")
			require.Equal(t, "new", next(), "new messages have their turns")
			require.NoError(t, send("running"))
			require.Equal(t, "begun", next())
			require.Equal(t, "running", next())
			require.Equal(t, []string{"retried", "waiting"}, ready(), "they were ready before all others")

			if control {
				clock.Set(t, 3*time.Hour)
			} else {
				b.runCommand(t)
			}
			rest := []string{next(), next()}
			slices.Sort(rest)
			require.Equal(t, []string{"retried", "waiting"}, rest)
		})
	}
}

func TestAFullMailboxIsNotCountedAgainBeforeTheClockThatWasSetBackShowsThatTime(t *testing.T) {
	t.Parallel()
	clock := service.NewClock(t)
	b := newBench(t, dbtest.Open(t, pgtest.StartServer(t, pgserver.Options{Env: clock.Env}).DSN("")))
	config := mailbox(b.pool)
	config.MaxTotal = 1
	box, err := turns.Open(t.Context(), config)
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	key, err := entities.Text("a")
	require.NoError(t, err)
	send := func() error {
		return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := box.Send(t.Context(), tx, key, turns.Message{Body: []byte("hello")})
			return err
		})
	}
	clock.Set(t, time.Hour)
	require.NoError(t, send())
	b.Exec("SELECT pglatch_turns.count_all('box', true)") // as a node does once a second
	require.ErrorIs(t, send(), turns.ErrLimit)
	clock.Set(t, 0)
	b.Exec("DELETE FROM pglatch_turns.messages")
	b.Exec("DELETE FROM pglatch_turns.entities")
	require.ErrorIs(t, send(), turns.ErrLimit, "the count before the step")
	b.runCommand(t)
	require.NoError(t, send())
}
