package prove

import (
	"cmp"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// attempts is how often a proof is made whose result is unknown, because the machine is busy.
const attempts = 4

// report proves everything on a server.
func report(t *testing.T, dsn string) (r Report) {
	t.Helper()
	config, err := pgdsn.Parse(dsn)
	require.NoError(t, err)
	for range attempts {
		r, err = Run(t.Context(), config)
		require.NoError(t, err)
		if !slices.ContainsFunc(r.Proofs, func(p Result) bool { return p.Status == Unknown }) {
			break
		}
	}
	return r
}

// proveOnly makes some of the proofs on a server.
func proveOnly(t *testing.T, config *pgx.ConnConfig, names ...string) map[string]Result {
	t.Helper()
	all := slices.DeleteFunc(proofs(), func(p proof) bool { return !slices.Contains(names, p.name) })
	assert.Len(t, all, len(names))
	results := map[string]Result{}
	for known, again := false, 0; !known && again < attempts; again++ {
		e := &examiner{config: connConfig(config)}
		known = true
		for _, r := range e.prove(t.Context(), all) {
			results[r.Proof] = r
			known = known && r.Status != Unknown
		}
		e.closeAll(t.Context())
	}
	return results
}

func TestAPostgreSQLIsProvenAndMayBeUsedForEverything(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, dsn := range []string{dsn, pretend(t, lie{}, dsn)} { // the control of the lies: a proxy that tells none
		r := report(t, dsn)
		require.Len(t, r.Proofs, len(proofs()))
		for _, p := range r.Proofs {
			assert.Equal(t, Works, p.Status, "%s: %s", p.Proof, p.Why)
		}
		for _, v := range r.Parts {
			assert.Equal(t, MayBeUsed, v.Use, "%s: %s", v.Part, v.Why)
		}
		assert.Equal(t, nothing, r.Between)
	}
}

// A found is a lie, and what is said of it.
type found struct {
	name   string
	proof  string
	lie    lie
	says   string
	also   []string // proofs that are made before
	status Status   // "" = does not
}

func lies() []found {
	const try, args = `pg_catalog\.pg_try_advisory_lock\(`, `([^)]*)\)`
	const unlockCall = `pg_catalog\.pg_advisory_unlock\(` + args
	return []found{
		{name: "acknowledges locks and does not lock", proof: exclusion, lie: lie{rewrite: [][2]string{{try + args, "true"}}}, says: "two sessions held"},
		{name: "refuses locks", proof: exclusion, lie: lie{rewrite: [][2]string{{try + args, "false"}}}, says: "a free lock was refused"},
		{name: "has one lock for all keys", proof: exclusion, lie: lie{rewrite: [][2]string{{try + args, "pg_try_advisory_lock(1, 1)"}}}, says: "another key was refused"},
		{
			name: "takes a shared lock for an exclusive one", proof: sharedMode, says: "a second reader was refused",
			lie: lie{rewrite: [][2]string{{`_lock_shared\(`, "_lock("}, {`_unlock_shared\(`, "_unlock("}}},
		},
		{name: "acknowledges shared locks and does not lock", proof: sharedMode, lie: lie{rewrite: [][2]string{{`pg_catalog\.pg_try_advisory_lock_shared\(` + args, "true"}}}, says: "a writer held the lock beside readers"},
		{name: "hides locks", proof: lockTable, lie: lie{rewrite: [][2]string{{`from pg_catalog\.pg_locks where`, "from pg_catalog.pg_locks where false and"}}}, says: "pg_locks does not show"},
		{name: "does not wait", proof: queue, lie: lie{rewrite: [][2]string{{`pg_catalog\.pg_advisory_lock\(`, "pg_catalog.pg_try_advisory_lock("}}}, says: "did not wait"},
		{name: "says that each unlock was one", proof: unlock, lie: lie{rewrite: [][2]string{{unlockCall, "(pg_advisory_unlock($1) or true)"}}}, says: "was not held was answered with true"},
		{name: "does not count locks", proof: unlock, lie: lie{rewrite: [][2]string{{unlockCall, "(pg_advisory_unlock($1) and pg_advisory_unlock_all() is not null)"}}}, says: "free after one unlock"},
		{name: "keeps the locks of sessions that ended", proof: endOfSession, lie: lie{keeps: true}, says: "still refused"},
		{name: "says that it terminated a session", proof: terminated, lie: lie{rewrite: [][2]string{{`^select pg_terminate_backend\(\d+\)$`, "select true"}}}, says: "goes on"},
		{
			name: "acknowledges the lease and has none", proof: lease, says: "silent for five times its lease",
			lie: lie{rewrite: [][2]string{{`pg_catalog\.set_config\('idle_session_timeout', ` + args, "'1s'"}, {`pg_catalog\.current_setting\('idle_session_timeout'\)`, "'1s'"}}},
		},
		{name: "forgets the lease", proof: lease, lie: lie{rewrite: [][2]string{{`'idle_session_timeout', '1000ms'`, "'idle_session_timeout', '0'"}}}, says: "cannot be set"},
		{name: "loses cancel requests", proof: canceling, lie: lie{cancel: lost}, says: "the statement went on"},
		{name: "cancels another statement", proof: cancelAim, lie: lie{cancel: another}, says: "ended the statement of another", also: []string{canceling}},
		{name: "swallows notifications", proof: notify, lie: lie{drop: func(m pgproto3.BackendMessage) bool { _, ok := m.(*pgproto3.NotificationResponse); return ok }}, says: "did not get the message"},
		{name: "acknowledges locks of transactions and does not lock", proof: txLocks, lie: lie{rewrite: [][2]string{{`pg_catalog\.pg_try_advisory_xact_lock\(` + args, "true"}}}, says: "two transactions held one lock"},
		{name: "keeps locks after a commit", proof: txLocks, lie: lie{swallow: "commit", status: 'I'}, says: "not free after the commit"},
		{name: "keeps locks after a rollback", proof: txRollback, lie: lie{swallow: "rollback", status: 'I'}, says: "not free after the rollback"},
		{name: "keeps locks after a rollback to a savepoint", proof: txSavepoint, lie: lie{swallow: "rollback to savepoint pglatch_prove", status: 'T'}, says: "after the rollback to it"},
		{name: "frees all locks at a rollback to a savepoint", proof: txSavepoint, lie: lie{rewrite: [][2]string{{`^rollback to savepoint .*`, "rollback"}}}, says: "taken before the savepoint was lost"},
		{name: "has a clock that goes back", proof: clock, lie: lie{rewrite: [][2]string{{`pg_catalog\.now\(\)`, `(now() - %d * interval '1 minute')`}}}, says: "clock was set"},
		{name: "has a clock of its own", proof: clock, lie: lie{rewrite: [][2]string{{`pg_catalog\.now\(\)`, `(now() - interval '1 hour')`}}}, says: "behind ours: run NTP", status: WorksWith},
		{name: "answers from other processes", proof: samePID, lie: lie{rewrite: [][2]string{{`pg_catalog\.pg_backend_pid\(\)`, "(pg_backend_pid() + %d)"}}}, says: "another server process answered"},
		{name: "has one process for all", proof: samePID, lie: lie{rewrite: [][2]string{{`pg_catalog\.pg_backend_pid\(\)`, "4711"}}}, says: "have one server process"},
		{name: "gives a session to two clients", proof: pooler, lie: lie{rewrite: [][2]string{{`pg_catalog\.pg_backend_pid\(\)`, "4711"}}}, says: "one session to many clients"},
	}
}

// Most lies are found at once. For some, the proof waits five seconds for an event that does not come, so the test tells several lies in parallel.
func TestAServerThatPretendsIsFoundOut(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	var all sync.WaitGroup
	room := make(chan struct{}, 8)
	for _, f := range lies() {
		config, err := pgdsn.Parse(pretend(t, f.lie, dsn))
		require.NoError(t, err)
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			r := proveOnly(t, config, append(f.also, f.proof)...)[f.proof]
			assert.Equal(t, cmp.Or(f.status, DoesNot), r.Status, "a server that %s: %s", f.name, r.Why)
			assert.Contains(t, r.Why, f.says, "a server that %s", f.name)
		})
	}
	all.Wait()
}

func TestEveryProofHasALieThatItFinds(t *testing.T) {
	t.Parallel()
	other := []string{oneServer, primary} // with servers of their own
	for _, f := range lies() {
		other = append(other, f.proof)
	}
	for _, p := range proofs() {
		assert.Contains(t, other, p.name)
	}
}

func TestConnectionsThatReachTwoServersAreFoundOut(t *testing.T) {
	t.Parallel()
	config, err := pgdsn.Parse(pretend(t, lie{}, pgtest.StartServer(t, pgserver.Options{}).DSN(""), pgtest.StartServer(t, pgserver.Options{}).DSN("")))
	require.NoError(t, err)
	results := proveOnly(t, config, oneServer, exclusion)
	assert.Equal(t, DoesNot, results[oneServer].Status)
	assert.Contains(t, results[oneServer].Why, "different servers")
	assert.Equal(t, DoesNot, results[exclusion].Status)
}
