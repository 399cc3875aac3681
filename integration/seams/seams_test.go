//go:build integration

package seams

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/leader"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/turns"
)

// An outcome says whether an error is the documented one.
type outcome func(err error) bool

// is accepts an error that matches all of these.
func is(targets ...error) outcome {
	return func(err error) bool {
		for _, target := range targets {
			if !errors.Is(err, target) {
				return false
			}
		}
		return true
	}
}

// state accepts an error of the server, or of a pooler, that has this SQLSTATE.
func state(code string) outcome {
	return func(err error) bool { return sqlstate.Of(err) == code }
}

// code accepts a command that ends so.
func code(code int) outcome {
	return func(err error) bool {
		e, ok := errors.AsType[*exit](err)
		return ok && e.code == code
	}
}

func TestEachEntryWorksOrRefuses(t *testing.T) {
	server := start(t)
	for _, around := range surroundings {
		t.Run(around.name, func(t *testing.T) {
			t.Parallel()
			site := around.make(t, server)
			for _, entry := range entries {
				if slices.Contains(around.elsewhere, entry.name) {
					continue
				}
				t.Run(entry.name, func(t *testing.T) {
					site := site
					if site.each != nil {
						site.dsn = site.each(t)
					}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					err := entry.use(ctx, t, site)
					if documented, refused := around.except[entry.name]; refused {
						require.Error(t, err, "it works, where a refusal is documented")
						assert.True(t, documented(err), "another error than the documented: %v (%[1]T)", err)
					} else {
						assert.NoError(t, err)
					}
					site.requireNothingLeft(t)
				})
			}
		})
	}
}

// Another program has the keys in another database of the server.
func TestLocksOfAnotherDatabaseHoldUpNothing(t *testing.T) {
	server := start(t)
	here, other, control := database(t, server), database(t, server), database(t, server)
	take := func(s site) (taken int) {
		rows, err := s.judge.Query(t.Context(), "SELECT pg_advisory_lock(1, k) FROM unnest(ARRAY[1, 2, 7, 9, 100]) k")
		require.NoError(t, err)
		for rows.Next() {
			taken++
		}
		require.NoError(t, rows.Err())
		return taken
	}
	require.Equal(t, 5, take(other))
	for _, entry := range entries {
		t.Run(entry.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.NoError(t, entry.use(ctx, t, here))
			here.requireNothingLeft(t)
		})
	}
	require.Equal(t, 5, take(control))
	l, err := open(t.Context(), control.dsn)
	require.NoError(t, err)
	defer l.Close()
	_, err = l.TryAcquire(t.Context(), agents.ID(1))
	require.ErrorIs(t, err, advisory.ErrHeld, "the control: in the same database it is held")
}

// alone are the entries that a lock of another entry would refuse, and those that look at who waits.
var alone = []string{"TryAcquire", "DoOrSkip", "try of LockTx", "Acquire of a held key", "LockTx of a held key", "try of LockTx of a held key", "pglatch try"}

// All share one database, and most share their keys: each gets its turn.
func TestAllFeaturesAtOnceInOneDatabase(t *testing.T) {
	s := database(t, start(t))
	t.Run("entries", func(t *testing.T) {
		for _, entry := range entries {
			if slices.Contains(alone, entry.name) {
				continue
			}
			t.Run(entry.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				assert.NoError(t, entry.use(ctx, t, s))
			})
		}
	})
	s.requireNothingLeft(t)
}

// What the other tests look for is found where it is.
func TestWhatIsLeftIsFoundControl(t *testing.T) {
	s := database(t, start(t))
	s.requireNothingLeft(t)
	other := admin(t, s.dsn)
	_, err := other.Exec(t.Context(), "SELECT pg_advisory_lock(1, 2)")
	require.NoError(t, err)
	require.Contains(t, s.left(t), "ExclusiveLock lock 1/2 of ")
	_, err = other.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	require.Contains(t, s.left(t), "in idle in transaction")
	for name, leave := range map[string]string{"a prepared statement": "PREPARE leftover AS SELECT 1", "a setting": "SET LOCAL lock_timeout = 7"} {
		require.ErrorContains(t, inTx(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, leave)
			return err
		})(t.Context(), t, s), "the caller's session was", name)
	}
}

const patience = await.Patience

func TestMain(m *testing.M) { clitest.MainOf(m, "../../cmd/pglatch") }

// surroundings say what is not as in a database without anything special. A new entry is expected to work in all.
var surroundings = []surrounding{
	{name: "direct", make: direct},
	{name: "pooler in session mode", make: pooler("pool_mode=session")},
	{name: "pooler in transaction mode", make: pooler("pool_mode=transaction"), except: union(lockers(advisory.ErrPooler), map[string]outcome{
		"election":               is(advisory.ErrPooler, leader.ErrPermanent),
		"candidate":              is(advisory.ErrPooler, leader.ErrPermanent),
		"shards":                 is(advisory.ErrPooler, leader.ErrPermanent),
		"pglatch doctor":         code(70), // a check fails
		"pglatch doctor --prove": code(70),
		"pglatch leader run":     code(69),
	})},
	{name: "pooler in statement mode", make: pooler("pool_mode=statement"), except: union(lockers(advisory.ErrPooler), map[string]outcome{
		// The caller's BEGIN is refused. What package turns sends in one message, from BEGIN to COMMIT, is not.
		"LockTx":                      state(sqlstate.ProtocolViolation),
		"try of LockTx":               state(sqlstate.ProtocolViolation),
		"LockTx of a held key":        state(sqlstate.ProtocolViolation),
		"try of LockTx of a held key": state(sqlstate.ProtocolViolation),
		"lease guard":                 state(sqlstate.ProtocolViolation),
		"once DoTx":                   state(sqlstate.ProtocolViolation),
		"LockSQLTx":                   state(sqlstate.ProtocolViolation),
		"once DoSQLTx":                state(sqlstate.ProtocolViolation),
		"once":                        is(once.ErrNotReady),
		"once table":                  is(once.ErrNotReady),
		"turns Send":                  state(sqlstate.ProtocolViolation),
		"turns SendSQL":               state(sqlstate.ProtocolViolation),
		"election":                    is(advisory.ErrPooler, leader.ErrPermanent),
		"candidate":                   is(advisory.ErrPooler, leader.ErrPermanent),
		"election table":              is(advisory.ErrPooler, leader.ErrPermanent),
		"shards":                      is(advisory.ErrPooler, leader.ErrPermanent),
		"look at shards":              is(advisory.ErrPooler, leader.ErrPermanent),
		"pin":                         is(advisory.ErrPooler, leader.ErrPermanent),
		"drain":                       is(advisory.ErrPooler, leader.ErrPermanent),
		"pglatch doctor":              code(70),
		"pglatch doctor --prove":      code(70),
		"pglatch leader run":          code(69),
		"pglatch shards ls":           code(69),
		"pglatch shards pin":          code(69),
		"pglatch shards drain":        code(69),
	})},
	{name: "standby", make: standby, except: union(lockers(advisory.ErrStandby), map[string]outcome{
		"LockTx":                      is(advisory.ErrStandby),
		"try of LockTx":               is(advisory.ErrStandby),
		"LockTx of a held key":        is(advisory.ErrStandby),
		"try of LockTx of a held key": is(advisory.ErrStandby),
		"LockSQLTx":                   is(advisory.ErrStandby),
		"election":                    is(advisory.ErrStandby),
		"candidate":                   is(advisory.ErrStandby),
		"lease":                       is(lease.ErrBusy),
		"lease guard":                 is(lease.ErrBusy),
		"look at leases":              is(lease.ErrBusy), // it is not healthy
		"lock server":                 is(lease.ErrBusy),
		"heartbeat":                   is(lease.ErrBusy),
		"shared lease":                is(lease.ErrBusy),
		"once":                        is(once.ErrNotReady),
		"once DoTx":                   is(advisory.ErrStandby),
		"once DoSQLTx":                is(advisory.ErrStandby),
		"turns Send":                  is(turns.ErrNotReady),
		"turns SendSQL":               is(turns.ErrNotReady),
		"turns schema":                is(turns.ErrNotReady),
		"shards":                      is(advisory.ErrStandby),
		"look at shards":              is(advisory.ErrStandby),
		"pin":                         is(advisory.ErrStandby),
		"drain":                       is(advisory.ErrStandby),
		"answers":                     is(advisory.ErrStandby),
		"requests":                    is(advisory.ErrStandby),
		"election table":              is(advisory.ErrStandby),
		"once table":                  is(once.ErrNotReady),
		"shards tables":               is(advisory.ErrStandby),
		"pglatch ls":                  code(69),
		"pglatch tree":                code(69),
		"pglatch verdicts":            code(69),
		"pglatch watch":               code(69),
		"pglatch status":              code(69),
		"pglatch ask":                 code(69),
		"pglatch dump":                code(69),
		"pglatch doctor":              code(70),
		"pglatch doctor --prove":      code(70),
		"pglatch migrate":             code(69),
		"pglatch leader run":          code(69),
		"pglatch leader status":       code(69),
		"pglatch leader watch":        code(69),
		"pglatch leader resign":       code(69),
		"pglatch shards ls":           code(69),
		"pglatch shards pin":          code(69),
		"pglatch shards drain":        code(69),
		"pglatch turns interrupt":     code(69),
		"pglatch turns purge":         code(69),
		"pglatch load":                code(69),
	})},
	{name: "promoted standby", make: promoted},
	// There, doctor --prove takes 36 seconds: cmd/internal/prove.TestAServerThatIsFarAwayHasMoreTime.
	{name: "slow server", make: slow, elsewhere: []string{"pglatch doctor --prove"}},
	{name: "statement_timeout", make: lasting(hurry, role("hurried", "ALTER ROLE hurried SET statement_timeout = '3s'"))},
	{name: "lock_timeout", make: role("impatient", "ALTER ROLE impatient SET lock_timeout = '1ms'")},
	{name: "idle timeouts", make: role("sleepless", "ALTER ROLE sleepless SET idle_in_transaction_session_timeout = '5s'; ALTER ROLE sleepless SET idle_session_timeout = '5s'")},
	{name: "read only", make: role("reader", "ALTER ROLE reader SET default_transaction_read_only = on"), except: map[string]outcome{
		"lease":          is(lease.ErrBusy),
		"lease guard":    is(lease.ErrBusy),
		"look at leases": is(lease.ErrBusy),
		"lock server":    is(lease.ErrBusy),
		"heartbeat":      is(lease.ErrBusy),
		"shared lease":   is(lease.ErrBusy),
		"once DoTx":      is(once.ErrNotReady),
		"once DoSQLTx":   is(once.ErrNotReady),
		"turns Send":     is(turns.ErrNotReady),
		"turns SendSQL":  is(turns.ErrNotReady),
		"shards":         is(shardspg.ErrReadOnly), // the guard locks a row
		"pglatch load":   code(69),
	}},
	{name: "serializable", make: role("strict", "ALTER ROLE strict SET default_transaction_isolation = serializable")},
	{name: "search_path", make: shadowed},
	{name: "no rights", make: stranger, except: union(noTables, map[string]outcome{
		"pglatch shards ls": code(77), "pglatch shards pin": code(77), "pglatch shards drain": code(77),
		"pglatch turns ls": code(77), "pglatch turns show": code(77), "pglatch turns interrupt": code(77), "pglatch turns retry": code(77),
		"pglatch turns skip": code(77), "pglatch turns purge": code(77),
	})},
	{name: "no tables", make: unmade, except: noTables},
	{name: "older tables", make: older, except: map[string]outcome{
		"election":              is(leader.ErrPermanent),
		"candidate":             is(leader.ErrPermanent),
		"lease":                 is(lease.ErrNotReady),
		"lease guard":           is(lease.ErrNotReady),
		"look at leases":        is(lease.ErrNotReady),
		"lock server":           is(lease.ErrNotReady),
		"look at a lock server": is(lease.ErrNotReady),
		"heartbeat":             is(lease.ErrNotReady),
		"shared lease":          is(lease.ErrNotReady),
		"once":                  is(once.ErrNotReady),
		"once DoTx":             is(once.ErrNotReady),
		"once DoSQLTx":          is(once.ErrNotReady),
		"shards":                is(leader.ErrPermanent),
		"look at shards":        is(leader.ErrPermanent),
		"election table":        is(leader.ErrPermanent),
		"once table":            is(once.ErrNotReady),
		"shards tables":         is(leader.ErrPermanent),
		"pglatch migrate":       code(69),
		"pglatch leader run":    code(69),
		"pglatch shards ls":     code(69),
		"pglatch shards pin":    code(69),
		"pglatch shards drain":  code(69),
	}},
}

// noTables is for roles that can use no table.
var noTables = map[string]outcome{
	"election":              is(leader.ErrPermanent),
	"candidate":             is(leader.ErrPermanent),
	"lease":                 is(lease.ErrNotReady),
	"lease guard":           is(lease.ErrNotReady),
	"look at leases":        is(lease.ErrNotReady),
	"lock server":           is(lease.ErrNotReady),
	"look at a lock server": is(lease.ErrNotReady),
	"heartbeat":             is(lease.ErrNotReady),
	"shared lease":          is(lease.ErrNotReady),
	"once":                  is(once.ErrNotReady),
	"look at ticks":         is(once.ErrNotReady),
	"once DoTx":             is(once.ErrNotReady),
	"once DoSQLTx":          is(once.ErrNotReady),
	"turns":                 is(turns.ErrNotReady),
	"turns Send":            is(turns.ErrNotReady),
	"turns SendSQL":         is(turns.ErrNotReady),
	"turns schema":          is(turns.ErrNotReady),
	"shards":                is(leader.ErrPermanent),
	"look at shards":        is(leader.ErrPermanent),
	"pin":                   is(leader.ErrPermanent),
	"drain":                 is(leader.ErrPermanent),
	"election table":        is(leader.ErrPermanent),
	"lease schema":          is(lease.ErrNotReady),
	"once table":            is(once.ErrNotReady),
	"shards tables":         is(leader.ErrPermanent),
	"pglatch migrate":       code(77),
	"pglatch leader run":    code(77),
	"pglatch serve locks":   code(77),
	"pglatch load":          code(77),
}

// lockers are the entries that need a Locker, where Open refuses.
func lockers(refusal error) map[string]outcome {
	all := map[string]outcome{"pglatch run": code(69), "pglatch try": code(69)}
	for _, name := range []string{"Acquire", "TryAcquire", "shared", "AcquireAll", "AcquireSlot", "Acquire of a held key", "Do", "DoOrSkip", "turns", "middleware", "adapter"} {
		all[name] = is(refusal)
	}
	return all
}

func union(a, b map[string]outcome) map[string]outcome {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
