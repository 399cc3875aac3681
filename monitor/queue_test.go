package monitor_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	gate "github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

func TestOneHolderAndTwoWaitersOfThreeLockersAreShownAsSuch(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		text, err := agents.Text("acme/eu")
		require.NoError(t, err)
		dsn := pgtest.DSN(t)
		for i, key := range []namespace.Key{agents.ID(42), text} {
			m := open(t, monitor.Config{DSN: dsn})
			who := func(word string) string { return fmt.Sprintf("%s%d", word, i) }
			lock, err := locker(t, dsn, who("holder")).Acquire(t.Context(), key)
			require.NoError(t, err)
			queueUp(t, m, locker(t, dsn, who("first")), key, 2)
			queueUp(t, m, locker(t, dsn, who("second")), key, 3)

			var s monitor.Snapshot
			for full := 0; full < 20; { // a waiter is in no queue for a moment after each wait step
				s = snapshot(t, m)
				for _, l := range s.Locks {
					require.Equal(t, key.Tag(), l.Tag, "%s of %s is no lock of its own", l.Mode, l.ApplicationName)
					require.Equal(t, l.ApplicationName == who("holder"), l.Granted, l.ApplicationName)
				}
				if complete(s) && s.Locks[0].Key.Text == key.String() { // which the process tells once it listens
					full++
				}
			}
			require.Equal(t, []string{who("holder"), who("first"), who("second")}, applications(s.Locks))
			h, first, second := s.Locks[0], s.Locks[1], s.Locks[2]
			assert.Equal(t, lock.PID(), h.PID)
			assert.Equal(t, []uint32{first.PID, second.PID}, h.Blocks)
			assert.Equal(t, []uint32{h.PID}, first.BlockedBy)
			assert.Equal(t, []uint32{h.PID, first.PID}, second.BlockedBy)
			assert.Equal(t, []uint32{second.PID}, first.Blocks)

			await.Until(t, patience, func() bool {
				var waiting monitor.Snapshot
				answer := get(t, m.Handler(), "/api/advisory-locks?state=waiting")
				return answer.Code == http.StatusOK && json.Unmarshal(answer.Body.Bytes(), &waiting) == nil && waiting.Total == 2 &&
					waiting.Locks[0].Key.Text == s.Locks[0].Key.Text && waiting.Locks[1].Key.Text == s.Locks[0].Key.Text
			})
			require.NoError(t, lock.Release())
			await.Until(t, patience, func() bool { return len(snapshot(t, m).Locks) == 0 }, "those that waited are served")
		}
	})
}

func TestWhoWaitsForTheTurnstileWaitsForTheKeyBehindTheFirst(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	key := agents.ID(42)
	reader, writer := clitest.Connect(t, dsn, "reader"), clitest.Connect(t, dsn, "writer")
	behind, late := clitest.Connect(t, dsn, "behind"), clitest.Connect(t, dsn, "late")
	run(t, reader, lockSQL("pg_advisory_lock_shared", key))
	lock(t, writer, turnstile(key)) // between two wait steps: it is in no queue
	wait(t, dsn, behind, turnstile(key))
	clitest.WaitFor(t, dsn, late, lockSQL("pg_advisory_lock_shared", turnstile(key)))
	r, w, b, l := pid(reader), pid(writer), pid(behind), pid(late)

	s := snapshot(t, m)

	require.Equal(t, []string{"reader", "writer", "behind", "late"}, applications(s.Locks))
	for i, want := range []monitor.Lock{
		{Granted: true, Mode: "ShareLock", BlockedBy: []uint32{}, Blocks: []uint32{w, b}},
		{Mode: "ExclusiveLock", BlockedBy: []uint32{r}, Blocks: []uint32{b, l}},
		{Mode: "ExclusiveLock", BlockedBy: []uint32{r, w}, Blocks: []uint32{l}},
		{Mode: "ShareLock", BlockedBy: []uint32{w, b}, Blocks: []uint32{}},
	} {
		got := s.Locks[i]
		assert.Equal(t, "agent/42", got.Key.Text)
		assert.Equal(t, want.Granted, got.Granted)
		assert.Equal(t, want.Mode, got.Mode)
		assert.Equal(t, want.BlockedBy, got.BlockedBy, got.ApplicationName)
		assert.Equal(t, want.Blocks, got.Blocks, got.ApplicationName)
		assert.Equal(t, want.Granted, got.HeldSince != nil)
	}
	assert.Nil(t, s.Locks[1].WaitStart)
	assert.Zero(t, s.Locks[1].Duration)
	assert.NotNil(t, s.Locks[2].WaitStart)
	assert.Positive(t, s.Locks[2].Duration)
}

func TestAHolderThatStillHasTheTurnstileIsShownOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	key := agents.ID(42)
	holder, waiter := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "waiter")
	lock(t, holder, turnstile(key))
	lock(t, holder, key)
	wait(t, dsn, waiter, turnstile(key))

	s := snapshot(t, m)

	require.Equal(t, []string{"holder", "waiter"}, applications(s.Locks))
	assert.True(t, s.Locks[0].Granted)
	assert.Equal(t, []uint32{pid(waiter)}, s.Locks[0].Blocks)
	assert.False(t, s.Locks[1].Granted)
	assert.Equal(t, []uint32{pid(holder)}, s.Locks[1].BlockedBy)
}

func TestATurnstileIsKnownFromBeforeWhenItsKeyIsFreeForAnInstant(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	key := agents.ID(42)
	holder, first, second := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "first"), clitest.Connect(t, dsn, "second")
	lock(t, holder, key)
	lock(t, first, turnstile(key))
	wait(t, dsn, second, turnstile(key))
	require.Len(t, snapshot(t, m).Locks, 3)
	run(t, holder, lockSQL("pg_advisory_unlock", key))

	for range 3 {
		s := snapshot(t, m)
		require.Equal(t, []string{"first", "second"}, applications(s.Locks))
		for _, l := range s.Locks {
			assert.Equal(t, key.Tag(), l.Tag)
			assert.False(t, l.Granted)
		}
		assert.Equal(t, []uint32{}, s.Locks[0].BlockedBy)
		assert.Equal(t, []uint32{pid(first)}, s.Locks[1].BlockedBy)
	}

	s := snapshot(t, open(t, monitor.Config{DSN: dsn}))
	require.Len(t, s.Locks, 2)
	assert.Equal(t, turnstile(key).Tag(), s.Locks[0].Tag, "control: nothing but the key says whose turnstile a number is")
}

// locker opens a Locker of the test's mode, as another process would.
func locker(t *testing.T, dsn, name string) *advisory.Locker {
	t.Helper()
	l, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: dsn, ApplicationName: name}))
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// queueUp makes a Locker wait for a key until the test ends, and returns when all of
// one holder and its waiters are seen.
func queueUp(t *testing.T, m *monitor.Monitor, l *advisory.Locker, key namespace.Key, all int) {
	t.Helper()
	waitFor(t, l, t.Context(), key)
	await.Until(t, patience, func() bool { return len(snapshot(t, m).Locks) >= all })
}

// complete reports whether all three are seen, and the blockers of each, which the
// server tells a moment later.
func complete(s monitor.Snapshot) bool {
	return len(s.Locks) == 3 && len(s.Locks[1].BlockedBy) == 1 && len(s.Locks[2].BlockedBy) == 2
}

func applications(locks []monitor.Lock) []string {
	names := make([]string, len(locks))
	for i, l := range locks {
		names[i] = l.ApplicationName
	}
	return names
}

// turnstile is the lock in front of a key, as a key.
func turnstile(key namespace.Key) namespace.Key {
	single, _ := gate.Of(key.Tag()).Single()
	return namespace.SingleRaw(single)
}

func TestWhoWaitsForWhomIsWhatPostgreSQLSays(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		dsn := pgtest.DSN(t)
		m := open(t, monitor.Config{DSN: dsn})
		functions := []string{"pg_advisory_lock", "pg_advisory_lock_shared"}
		holders := 1 + rand.IntN(2)
		for i := range holders {
			run(t, clitest.Connect(t, dsn, fmt.Sprint("holder", i)), lockSQL(functions[min(holders-1, 1)], agents.ID(42)))
		}
		for i := range 7 {
			function := functions[rand.IntN(2)]
			if i == 0 {
				function = functions[0] // so that all that follow wait
			}
			clitest.WaitFor(t, dsn, clitest.Connect(t, dsn, fmt.Sprint("waiter", i)), lockSQL(function, agents.ID(42)))
		}
		look := clitest.Connect(t, dsn, "look")

		s := snapshot(t, m)

		require.Len(t, s.Locks, holders+7)
		blocks := map[uint32][]uint32{}
		for _, l := range s.Locks {
			rows, err := look.Query(t.Context(), `SELECT DISTINCT unnest(pg_blocking_pids($1))`, int32(l.PID))
			require.NoError(t, err)
			want, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
			require.NoError(t, err)
			assert.ElementsMatch(t, want, l.BlockedBy, "round %d: %s %s", round, l.ApplicationName, l.Mode)
			for _, pid := range want {
				blocks[pid] = append(blocks[pid], l.PID)
			}
		}
		for _, l := range s.Locks {
			assert.ElementsMatch(t, blocks[l.PID], l.Blocks, "round %d: %s %s", round, l.ApplicationName, l.Mode)
			assert.False(t, slices.Contains(l.Blocks, l.PID))
		}
	}
}

func TestASessionThatHoldsALockAndWaitsForItDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	m := open(t, monitor.Config{DSN: dsn})
	reader, upgrade := clitest.Connect(t, dsn, "reader"), clitest.Connect(t, dsn, "upgrade")
	shared := lockSQL("pg_advisory_lock_shared", agents.ID(42))
	run(t, reader, shared)
	run(t, upgrade, shared)
	wait(t, dsn, upgrade, agents.ID(42))

	s := snapshot(t, m)

	require.Len(t, s.Locks, 3)
	assert.Equal(t, []uint32{pid(reader)}, s.Locks[2].BlockedBy)
	for _, l := range s.Locks[:2] {
		if l.PID == pid(reader) {
			assert.Equal(t, []uint32{pid(upgrade)}, l.Blocks)
		} else {
			assert.Empty(t, l.Blocks)
		}
	}
}
