//go:build integration

package seams

import (
	"maps"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/turns"
)

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
