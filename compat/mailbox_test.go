//go:build integration

package compat_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// A handled message is a row that a node wrote when it committed the message's turn.
type handled struct {
	Entity, Message, Node string
}

// disorder returns the first difference between the messages of an entity that were handled, and the numbers from 1.
func disorder(log []handled, entity string) string {
	next := 1
	for _, h := range log {
		if h.Entity == entity {
			if h.Message != fmt.Sprint(next) {
				return fmt.Sprintf("message %s after %d", h.Message, next-1)
			}
			next++
		}
	}
	return ""
}

func TestTurnsOfTwoVersionsServeOneMailboxInOrderAndOnce(t *testing.T) {
	t.Parallel()
	assert.NotEmpty(t, disorder([]handled{{"e", "1", ""}, {"e", "1", ""}}, "e"), "the control: one message twice")
	assert.NotEmpty(t, disorder([]handled{{"e", "2", ""}, {"e", "1", ""}}, "e"), "the control: another order")
	inBothOrdersOf(t, baseTurns, func(t *testing.T, first, second version) {
		t.Helper()
		dsn := pgtest.DSN(t)
		conn := pgtest.Connect(t, dsn)
		_, err := conn.Exec(t.Context(), "CREATE TABLE handled (n bigserial PRIMARY KEY, entity text, message text, node text)", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		first.start(t, dsn, "tables").says(t, "migrate mailboxes", "migrated")
		second.start(t, dsn, "tables").says(t, "migrate mailboxes", "migrated")
		log := func() []handled {
			rows, err := conn.Query(t.Context(), "SELECT entity, message, node FROM handled ORDER BY n")
			require.NoError(t, err)
			all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[handled])
			require.NoError(t, err)
			return all
		}
		handles := func(want handled, what string) {
			t.Helper()
			await.Until(t, await.Patience, func() bool { return slices.Contains(log(), want) }, what)
		}
		// wait has the only node that is free begin a turn that lasts.
		wait := func(p peer, entity string) {
			p.says(t, "send "+entity+" wait", "sent")
			await.Until(t, await.Patience, func() (running bool) {
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pglatch_turns.entities WHERE entity = $1 AND state = 'running')", entity).Scan(&running))
				return running
			}, "its turn runs")
		}
		sent := 0
		// send sends messages of three entities, from peers in turn, and waits until node has handled them.
		send := func(node string, peers ...peer) {
			t.Helper()
			before := log()
			for range 10 {
				sent++
				for _, entity := range []string{"x", "y", "z"} {
					peers[sent%len(peers)].says(t, fmt.Sprint("send ", entity, " ", sent), "sent")
				}
			}
			await.Until(t, await.Patience, func() bool { return len(log()) == len(before)+30 }, "all are handled")
			for _, h := range log()[len(before):] {
				assert.Equal(t, node, h.Node)
			}
		}

		a, b := first.start(t, dsn, "mailbox", "a"), second.start(t, dsn, "mailbox", "b")
		a.says(t, "serve", "serves")
		wait(b, "first")
		b.says(t, "serve", "serves")
		send("b", a, b)
		b.says(t, "interrupt first", "interrupted")
		handles(handled{"first", "wait", "a"}, "the turn of the other version ends")
		b.says(t, "stop", "stopped")
		send("a", a, b)
		wait(b, "second")
		b.says(t, "serve", "serves")
		a.Signal(syscall.SIGKILL)
		handles(handled{"second", "wait", "b"}, "a killed node's turn goes to the other version")
		send("b", b)

		for _, entity := range []string{"x", "y", "z"} {
			assert.Empty(t, disorder(log(), entity), entity)
		}
		assert.Len(t, log(), 3*sent+2)
	})
}
