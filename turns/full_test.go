package turns_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/turns"
)

// Turns take no more of the server's lock table than their Locker may. Entities wait, and another application does not
// notice. In the control the Locker may take all of it.
func TestEntitiesWaitForAFullLockerAndAnotherApplicationDoesNot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ maxLocks, entities int }{
		"with MaxLocks": {30, 100}, "control: without a limit": {1 << 20, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_connections": "40", "max_locks_per_transaction": "10"}})
			dsn := server.DSN("")
			pool := newPool(t, dsn+"&pool_max_conns=10")
			locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, LocksPerConn: 10_000, MaxLocks: test.maxLocks})
			require.NoError(t, err)
			t.Cleanup(locker.Close)
			c := turns.Config{Pool: pool, Name: "chat", Namespace: conversations, Locker: locker, Concurrency: 10_000}
			box, err := turns.Open(t.Context(), c)
			require.NoError(t, err)
			require.NoError(t, box.Migrate(t.Context()))
			for i := 0; i < test.entities; i += 50 { // each is a lock until the commit
				exec(t, pool, "SELECT pglatch_turns.pglatch_send('chat', i::text, '') FROM generate_series($1::int, $1::int + 49) AS i", i)
			}
			other := newPool(t, dsn+"&pool_max_conns=5")
			exec(t, other, "CREATE TABLE event (at int) PARTITION BY LIST (at)")
			for i := range 100 {
				exec(t, other, fmt.Sprintf("CREATE TABLE event_%d PARTITION OF event FOR VALUES IN (%d)", i, i))
			}
			work := func() error { // a lock on each partition
				_, err := other.Exec(t.Context(), "SELECT count(*) FROM event")
				return err
			}

			var begun atomic.Int32
			leave := make(chan struct{})
			serve(t, box, func(context.Context, *turns.Turn) error {
				begun.Add(1)
				<-leave
				return nil
			})
			if test.maxLocks > test.entities {
				t.Cleanup(func() { close(leave) })
				await.Until(t, await.Patience, func() bool { return sqlstate.Of(work()) == sqlstate.OutOfMemory }, "the table is full")
				return
			}
			await.Until(t, await.Patience, func() bool { return locker.Stats().Locks == test.maxLocks }, "the Locker is full")
			require.NoError(t, work())
			beside := newLocker(t, dsn)
			for i := range 50 {
				lock, err := beside.TryAcquire(t.Context(), key(t, fmt.Sprint("beside ", i)))
				require.NoError(t, err)
				defer lock.Release()
			}
			assert.Less(t, int(begun.Load()), test.maxLocks, "the node has one, too")
			assert.Equal(t, test.entities, one[int](t, pool, "SELECT count(*) FROM pglatch_turns.messages"), "the others wait")
			assert.Zero(t, one[int](t, pool, "SELECT coalesce(max(attempts), 0) FROM pglatch_turns.entities WHERE state = 'ready'"), "which is no attempt")
			close(leave)
			await.Until(t, await.Patience, func() bool { return one[int](t, pool, "SELECT count(*) FROM pglatch_turns.messages") == 0 }, "all have their turn")
			assert.Zero(t, one[int](t, pool, "SELECT count(*) FROM pglatch_turns.dead"))
		})
	}
}
