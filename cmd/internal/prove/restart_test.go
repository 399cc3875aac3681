package prove

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

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
