package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease"
)

const era = 1 << 40

func TestAnAcquireThatWaitsForASweepCountsOn(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			s, j := newStore(t, dsn), newJudge(t, dsn)
			// The control decides about a floor and a row in one snapshot.
			j.exec("CREATE TABLE by_hand (name text PRIMARY KEY, token bigint)")
			const control = `INSERT INTO by_hand AS t SELECT 'x', s.floor + 1 FROM pglatch_lease.store AS s ON CONFLICT (name) DO UPDATE SET token = t.token + 1 RETURNING token`
			var token, last int64
			for range 4 {
				cycle(t, s, "x")
				token = one[int64](j, control)
			}
			j.exec("ALTER DATABASE " + pgx.Identifier{one[string](j, "SELECT current_database()")}.Sanitize() + " SET default_transaction_isolation = '" + isolation + "'")
			s = open(t, dsn, nil)

			sweep := j.begin()
			_, err := sweep.Exec(t.Context(), "SELECT pglatch_lease.sweep(0, 10, '1s')")
			require.NoError(t, err)
			_, err = sweep.Exec(t.Context(), "DELETE FROM by_hand")
			require.NoError(t, err)
			acquired, counted := make(chan uint64, 1), make(chan int64, 1)
			go func() {
				for {
					l, err := s.Acquire(context.WithoutCancel(t.Context()), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
					if busy := (*lease.BusyError)(nil); assert.ErrorAs(t, orBusy(err), &busy) && err == nil {
						acquired <- l.Token
						return
					}
				}
			}()
			go func() { counted <- one[int64](j, control) }()
			j.eventually(func() bool {
				return one[int](j, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 2
			})
			require.NoError(t, sweep.Commit(t.Context()))
			assert.Greater(t, <-acquired, uint64(4))
			last = <-counted
			assert.LessOrEqual(t, last, token, "the control repeats a token")
		})
	}
}

// orBusy lets a test that takes *lease.BusyError for granted take success too.
func orBusy(err error) error {
	if err == nil {
		return &lease.BusyError{}
	}
	return err
}

func TestTokensRiseAcrossThePromotionOfAStandbyThatMissedSome(t *testing.T) {
	t.Parallel()
	primary := startServer(t, nil)
	s := newStore(t, primary.DSN(""))
	cycle(t, s, "x")
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	replica := newJudge(t, standby.DSN(""))
	replica.eventually(func() bool { return one[int](replica, "SELECT count(*) FROM pglatch_lease.locks") == 1 })
	onStandby := open(t, standby.DSN(""), nil)
	_, err = onStandby.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, err, "as a standby is")
	held := acquire(t, s, "held", "h").Claim
	replica.eventually(func() bool { return one[int](replica, "SELECT count(*) FROM pglatch_lease.locks") == 2 })
	_, err = onStandby.Acquire(t.Context(), lease.AcquireRequest{Name: "held", Holder: "h", TTL: ttl})
	require.ErrorIs(t, err, lease.ErrBusy, "what a standby knows of a lease is old")
	require.NoError(t, s.Release(t.Context(), held))

	replica.exec("SELECT pg_wal_replay_pause()")
	before := make(map[string]uint64)
	for _, name := range []string{"x", "unseen"} { // the standby knows of x, and nothing of the other
		for range 5 {
			before[name] = cycle(t, s, name)
		}
	}
	require.NoError(t, primary.Stop(t.Context(), pgserver.Immediate))
	replica.exec("SELECT pg_wal_replay_resume()")
	require.True(t, one[bool](replica, "SELECT pg_promote(wait => false)"), "a wait in the server would hold a snapshot, with which what is replayed can conflict")
	replica.eventually(func() bool { return !one[bool](replica, "SELECT pg_is_in_recovery()") })
	// What is replayed after the pause depends on what had been received: the rows go back to the first.
	replica.exec("ALTER TABLE pglatch_lease.locks DISABLE TRIGGER forget")
	replica.exec("DELETE FROM pglatch_lease.locks WHERE name = 'unseen'; UPDATE pglatch_lease.locks SET token = 1, version = 1, released_at = now(), available_at = now()")
	onStandby.Close()
	onStandby = open(t, standby.DSN(""), nil)
	for name, token := range before {
		after := cycle(t, onStandby, name)
		assert.Greater(t, after, token, name)
		assert.LessOrEqual(t, after%era, token%era, "the control: without an era it is no greater")
		assert.Equal(t, uint64(1), cycle(t, onStandby, name)/era, "one promotion counts once")
	}
}

func TestAnEraBeginsWhereTheServerIsAnother(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	require.Equal(t, uint64(1), cycle(t, s, "x"))
	for change, want := range map[string]uint64{
		"timeline = timeline":                       5,
		"timeline = timeline - 3":                   8, // three promotions since
		"system_identifier = system_identifier + 1": 6, // a dump, restored elsewhere
		"timeline = timeline + 7":                   6, // pg_upgrade begins at 1 again
		"relation = 1":                              6, // a dump, restored here
		"relation = 1, timeline = timeline - 3":     9, // the same, after three promotions
	} {
		j.exec("DELETE FROM pglatch_lease.locks") // which raises the floor
		j.exec("UPDATE pglatch_lease.store SET floor = $1::bigint + 17, "+change, int64(5*era))
		assert.Equal(t, want, cycle(t, s, "x")/era, change)
	}
	j.exec("UPDATE pglatch_lease.locks SET token = 9223372036854775807")
	_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl})
	require.ErrorContains(t, err, "out of range")
}
