package pgsession

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/namespace"
)

// promoted makes all that the pool has seen older than the server is: as if it had been promoted since.
func promoted(p *Pool, sessions ...*Session) {
	p.lineage.mu.Lock()
	defer p.lineage.mu.Unlock()
	p.lineage.known.timeline--
	for _, s := range sessions {
		s.link.origin = p.lineage.known
	}
}

// acquireSoon acquires a session in the background.
func acquireSoon(ctx context.Context, t *testing.T, p *Pool) <-chan *Session {
	t.Helper()
	acquired := make(chan *Session, 1)
	go func() {
		s, err := p.Acquire(ctx)
		assert.NoError(t, err)
		if err == nil {
			acquired <- s.(*Session)
		}
		close(acquired)
	}()
	return acquired
}

func TestASessionOnAHigherTimelineComesWhenTheOwnersOfTheOlderOnesKnow(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		off     bool // the control
		drained time.Duration
	}{
		"without a drain": {},
		"with a drain":    {drained: 300 * time.Millisecond},
		"switched off":    {off: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			p, judge := newPool(t, dsn, func(c *Config) { c.LossDrain = row.drained }), connect(t, dsn)
			s := take(t, p, pairKey)
			promoted(p, s)
			if row.off {
				p.lineage = nil
				acquire(t, p)
				requireNoLoss(t, s, watch(s))
				return
			}
			lost, acquired := watch(s), acquireSoon(t.Context(), t, p)
			loss := requireLoss(t, s, lost)
			var other *session.OtherServerError
			require.ErrorAs(t, loss, &other)
			assert.Less(t, other.Timeline, other.KnownTimeline)
			select {
			case <-acquired:
				require.Fail(t, "acquired before the holder of the other lock knows that it is gone")
			default:
			}
			known := time.Now()
			s.Close(false)
			next := <-acquired
			require.NotNil(t, next)
			defer next.Close(false)
			assert.GreaterOrEqual(t, time.Since(known), row.drained)
			awaiting.Until(t, patience, func() bool { return judge.locks(s.PID()) == "0" })
		})
	}
}

// A tracer can hang, and so keep a session from being closed.
func TestAnOwnerThatHangsHoldsUpAHigherTimelineUntilItsLeaseIsOver(t *testing.T) {
	t.Parallel()
	p := newPool(t, pgtest.DSN(t), briefly)
	s := take(t, p, pairKey)
	promoted(p, s)
	acquire(t, p)
	assert.LessOrEqual(t, s.lease(), time.Duration(0))
	assert.Equal(t, session.Lost, s.state(time.Now()))
}

func TestWhoWaitsForAHigherTimelineCanLeave(t *testing.T) {
	t.Parallel()
	p := newPool(t, pgtest.DSN(t), nil)
	s := take(t, p, pairKey)
	lost := watch(s)
	promoted(p, s)
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := p.Acquire(ctx)
		left <- err
	}()
	requireLoss(t, s, lost)
	enough := errors.New("enough")
	cancel(enough)
	require.ErrorIs(t, <-left, enough)
	s.Close(false)
	acquire(t, p)
}

func TestAnOldPrimaryAndAnotherSystemAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*origin){
		"timeline": func(o *origin) { o.timeline++ },
		"system":   func(o *origin) { o.system = "1" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, pgtest.DSN(t), nil) // with an idle connection
			s := take(t, p, pairKey)
			change(&p.lineage.known)
			for range 2 {
				_, err := p.Acquire(t.Context())
				var other *session.OtherServerError
				require.ErrorAs(t, err, &other)
				require.ErrorIs(t, err, session.ErrOtherServer)
				require.ErrorIs(t, err, session.ErrUnavailable)
				require.NotErrorIs(t, err, session.ErrRefused)
				require.ErrorContains(t, err, "close the Locker and open another")
				assert.Equal(t, s.link.conn.Conn().RemoteAddr().String(), other.Server)
				assert.Equal(t, s.link.origin, origin{other.System, other.Timeline})
				assert.Equal(t, p.lineage.known, origin{other.KnownSystem, other.KnownTimeline})
			}
			requireNoLoss(t, s, watch(s))
			p.lineage = nil // the control
			acquire(t, p)
		})
	}
}

func TestAnyRoleIsToldTheOriginUnlessTheFunctionsAreRevoked(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin := connect(t, server.DSN(""))
	admin.exec("CREATE ROLE app LOGIN")
	dsn := pgtest.As(t, server.DSN(""), "app")
	p := newPool(t, dsn, nil)
	s := acquire(t, p)
	assert.Equal(t, p.lineage.known, s.link.origin)
	assert.Equal(t, admin.exec("SELECT system_identifier FROM pg_control_system()")[0], s.link.origin.system)
	assert.Equal(t, admin.exec("SELECT timeline_id FROM pg_control_checkpoint()")[0], format(s.link.origin.timeline), "it was never promoted")

	// A key each, because the server ends a session some time after the session is closed here.
	for function, key := range map[string]namespace.Tag{"pg_control_system()": pairKey, "pg_walfile_name(pg_lsn)": singleKey} {
		admin.exec("REVOKE EXECUTE ON FUNCTION pg_catalog." + function + " FROM PUBLIC")
		blind := newPool(t, dsn, nil)
		take(t, blind, key).Close(false)
		assert.Zero(t, blind.lineage.known)
		blind.lineage.known = origin{"1", 9}
		acquire(t, blind)
		admin.exec("GRANT EXECUTE ON FUNCTION pg_catalog." + function + " TO PUBLIC")
	}
}

func TestAnOriginIsReadFromTheNameOfAWALFile(t *testing.T) {
	t.Parallel()
	assert.Equal(t, origin{"7", 26}, parseOrigin("7", "0000001A00000000000000FF"))
	for _, name := range []string{"", "0000", "no hex digits"} {
		assert.Zero(t, parseOrigin("7", name), name)
	}
}

// A session that was never answered has no lease yet. Its first lock would be granted beside those of the promoted server.
func TestASessionOfTheOldServerThatWasNeverAnsweredGrantsNothingAfterThePromotion(t *testing.T) {
	t.Parallel()
	p := newPool(t, pgtest.DSN(t), nil)
	old := acquire(t, p)
	promoted(p, old)
	tried := make(chan error, 1)
	next := make(chan error, 1)
	go func() {
		s, err := p.Acquire(t.Context())
		if err == nil {
			s.Close(false)
		}
		next <- err
	}()
	awaiting.Until(t, patience, func() bool { return old.lost.Load() != nil }, "it is ended")
	go func() {
		_, err := old.Try(pairKey, session.Exclusive)
		old.Close(false)
		tried <- err
	}()
	var other *session.OtherServerError
	require.ErrorAs(t, <-tried, &other)
	require.NoError(t, <-next, "the other waits until its owner has closed it")
}

// A server that is just writing its control file cannot always read it. The origin of a server that has one is not taken for unknown.
func TestAnErrorThatPassesDoesNotHideTheOrigin(t *testing.T) {
	t.Parallel()
	admin := connect(t, pgtest.StartServer(t, pgserver.Options{}).DSN(""))
	admin.exec("SET allow_system_table_mods = on; ALTER FUNCTION pg_catalog.pg_control_system() RENAME TO pg_control_system_of_before; SELECT 1")
	for code, known := range map[string]bool{"XX001": true, "42501": false} {
		admin.exec(`CREATE OR REPLACE FUNCTION pg_catalog.pg_control_system(OUT pg_control_version integer, OUT catalog_version_no integer,
			OUT system_identifier bigint, OUT pg_control_last_modified timestamp with time zone)
			LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'torn' USING ERRCODE = '` + code + `'; END $$; SELECT 1`)
		at, standby, err := identify(t.Context(), admin.conn)
		assert.False(t, standby)
		assert.Equal(t, origin{}, at)
		if known {
			require.Equal(t, code, sqlstate.Of(err))
			continue
		}
		require.NoError(t, err, "the control: a role that may not ask")
	}
}
