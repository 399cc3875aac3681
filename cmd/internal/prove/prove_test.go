package prove

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
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

func TestMain(m *testing.M) { pgtest.Main(m) }

// Whenever the server falls silent, what it did not answer is unknown. The control, TestAServerThatPretendsIsFoundOut, has
// servers that answer, and are accused.
func TestAServerThatFallsSilentIsAccusedOfNothing(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, messages := range []int64{70, 200, 400, inTheCancel} {
		t.Run(fmt.Sprint(messages), func(t *testing.T) {
			t.Parallel()
			var left atomic.Int64
			left.Store(messages)
			silent := lie{
				drop: func(pgproto3.BackendMessage) bool { return left.Add(-1) < 0 },
				cancel: func(_ *pretender, request *pgproto3.CancelRequest) *pgproto3.CancelRequest {
					left.Store(0)
					return request
				},
			}
			config, err := pgdsn.Parse(pretend(t, silent, dsn))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // of the 20
			defer cancel()
			r, err := Run(ctx, config)
			if err != nil {
				require.Error(t, ctx.Err(), "%v", err)
				return // on a busy machine
			}
			known := 0
			for _, p := range r.Proofs {
				assert.Contains(t, []Status{Works, Unknown}, p.Status, "%s: %s", p.Proof, p.Why)
				if p.Status == Works {
					known++
				}
			}
			assert.Less(t, known, len(r.Proofs))
			_, unknown := r.Failed(PartNames())
			assert.NotEmpty(t, unknown)
		})
	}
}

// inTheCancel is so many messages that the silence begins with the first cancel request.
const inTheCancel = 1 << 40

// Two people prove one server. The control: with one key for everybody, each would take the other's lock for a fault.
func TestTwoAtOnceProveOneServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, who := range []string{"one", "another"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			for _, p := range report(t, dsn).Proofs {
				assert.Equal(t, Works, p.Status, "%s: %s", p.Proof, p.Why)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		_, err := pgtest.Connect(t, dsn).Exec(t.Context(), "SELECT pg_advisory_lock($1, 1)", space)
		require.NoError(t, err)
		config, err := pgdsn.Parse(pretend(t, lie{rewrite: [][2]string{{fmt.Sprintf(`%d, \d+`, space), fmt.Sprintf("%d, 1", space)}}}, dsn))
		require.NoError(t, err)
		assert.Equal(t, DoesNot, proveOnly(t, config, exclusion)[exclusion].Status)
	})
}

// The proofs take 36 seconds if each answer takes 0.2 s.
func TestAServerThatIsFarAwayHasMoreTime(t *testing.T) {
	t.Parallel()
	config, err := pgdsn.Parse(pgtest.DSN(t))
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), fmt.Sprintf("%s:%d", config.Host, config.Port))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	url, err := proxy.URL(config.ConnString())
	require.NoError(t, err)
	config, err = pgdsn.Parse(url)
	require.NoError(t, err)
	e := &examiner{config: connConfig(config)}
	e.sessions[0], err = e.open(t.Context())
	require.NoError(t, err)
	defer e.closeAll(t.Context())
	near := e.limit(t.Context())
	for range 50 { // on a busy machine, some answers are late
		near = min(near, e.limit(t.Context()))
	}
	proxy.Delay(far / 2) // in each direction
	assert.Equal(t, 60*time.Second, e.limit(t.Context()))
	assert.GreaterOrEqual(t, near, total)
	assert.Less(t, near, 60*time.Second, "the control: a server that is near")
}

// A change is what happens to a server while it is proven. Statements wait for its end.
type change struct {
	when    func() func(sql string) bool // before this statement
	start   func(t *testing.T) (dsn string, happen func(*pretender) error)
	after   func(sql string) string // what is asked of the server afterwards; nil = the same
	control map[string]Status       // the results without the look at the end; nil = the sessions that ended are noticed, too
}

// inSharedMode is in the middle of the proof of shared mode.
func inSharedMode() func(sql string) bool {
	return func(sql string) bool { return strings.Contains(sql, "pg_advisory_unlock_shared") }
}

// afterSharedMode is when everything has been seen that this proof needs.
func afterSharedMode() func(sql string) bool {
	var seen atomic.Bool
	in := inSharedMode()
	return func(sql string) bool {
		if in(sql) {
			seen.Store(true)
		}
		return seen.Load() && strings.Contains(sql, "pg_catalog.now()")
	}
}

func restarted(t *testing.T) (dsn string, happen func(*pretender) error) {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{})
	return server.DSN(""), func(p *pretender) error { return server.Restart(p.ctx, pgserver.Immediate) }
}

func promoted(t *testing.T) (dsn string, happen func(*pretender) error) {
	t.Helper()
	primary := pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })
	address := host(t, standby.DSN(""))
	return primary.DSN(""), func(p *pretender) error {
		p.upstream = []string{address}
		return errors.Join(primary.Kill(), promote(p.ctx, standby))
	}
}

func promote(ctx context.Context, standby *pgserver.Server) error {
	conn, err := pgconn.Connect(ctx, standby.DSN(""))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT pg_promote()").ReadAll()
	return errors.Join(err, conn.Close(ctx))
}

// prove runs some of the proofs while the change happens, and returns their results without the look at the end, and with it.
// late: on a busy machine, an answer that is needed did not come in time.
func (c change) prove(t *testing.T) (without []Result, with Report, late bool) {
	t.Helper()
	dsn, happen := c.start(t)
	when := c.when()
	var happened atomic.Bool
	changes := make(chan error, 1)
	config, err := pgdsn.Parse(pretend(t, lie{edit: func(p *pretender, sql string) string {
		if when(sql) && happened.CompareAndSwap(false, true) {
			changes <- p.change(happen)
		}
		if happened.Load() && c.after != nil {
			return c.after(sql)
		}
		return sql
	}}, dsn))
	require.NoError(t, err)
	some := slices.DeleteFunc(proofs(), func(p proof) bool {
		return !slices.Contains([]string{oneServer, exclusion, sharedMode, txLocks, clock}, p.name)
	})
	e := &examiner{config: connConfig(config)}
	defer func() { e.closeAll(context.WithoutCancel(t.Context())) }()
	e.sessions[0], err = e.open(t.Context())
	require.NoError(t, err)
	without = e.prove(t.Context(), some)
	if !happened.Load() || e.identity == "" {
		return nil, Report{}, true
	}
	require.NoError(t, <-changes)
	if _, err := e.ask(t.Context(), identity); err != nil {
		return nil, Report{}, true
	}
	with.Proofs = slices.Clone(without)
	e.doubtAnother(t.Context(), with.Proofs)
	for i := range parts {
		with.Parts = append(with.Parts, parts[i].judge(with.Proofs))
	}
	return without, with, false
}

// Nothing is known of a server that is restarted or promoted meanwhile. The controls are the results without the look at the
// end: a restart goes unnoticed, and the clock of the new server is accused.
func TestAServerThatIsRestartedOrPromotedMeanwhileIsUnknown(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for name, c := range map[string]change{
		"restarted in a proof": {when: inSharedMode, start: restarted},
		"restarted between proofs": {
			when: afterSharedMode, start: restarted,
			control: map[string]Status{oneServer: Works, exclusion: Works, sharedMode: Works, txLocks: Works, clock: Works},
		},
		"promoted in a proof": {when: inSharedMode, start: promoted},
		"promoted, an hour behind": {
			when: afterSharedMode, start: promoted,
			after: func(sql string) string {
				return strings.ReplaceAll(sql, "pg_catalog.now()", "(pg_catalog.now() - interval '1 hour')")
			},
			control: map[string]Status{oneServer: Works, exclusion: Works, sharedMode: Works, txLocks: Works, clock: DoesNot},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var control map[string]Status
			for range attempts {
				without, with, late := c.prove(t)
				if late {
					continue
				}
				requireUnknown(t, with)
				control = map[string]Status{}
				for _, r := range without {
					control[r.Proof] = r.Status
				}
				if c.control == nil || maps.Equal(c.control, control) {
					return
				}
			}
			require.NotNil(t, control, "the machine is too busy")
			assert.Equal(t, c.control, control)
		})
	}
}

func requireUnknown(t *testing.T, r Report) {
	t.Helper()
	for _, p := range r.Proofs {
		require.Equal(t, Unknown, p.Status, "%s: %s", p.Proof, p.Why)
		require.Contains(t, p.Why, "prove again")
	}
	for _, v := range r.Parts {
		require.Equal(t, NotProven, v.Use, "%s: %s", v.Part, v.Why)
	}
}
