package pgsession

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/namespace"
)

// hail cancels whatever the backend does shortly after each kick.
type hail struct {
	kicks chan struct{}
	wg    sync.WaitGroup
}

func startHail(b bystander, pid uint32) *hail {
	h := &hail{kicks: make(chan struct{}, 1)}
	h.wg.Go(func() {
		for range h.kicks {
			b.hail(pid)
		}
	})
	return h
}

// kick returns after a random moment, so that the next statement meets the
// cancellation somewhere on its way.
func (h *hail) kick() {
	select {
	case h.kicks <- struct{}{}:
	default:
	}
	spinUntil(time.Now().Add(rand.N(300 * time.Microsecond)))
}

func (h *hail) stop() { close(h.kicks); h.wg.Wait() }

// lingering returns what makes the session's tries of a key take a millisecond before
// their effect and one after it. A server looks for a cancellation for some microseconds
// of a try only: on a busy machine none of thousands may come in them.
func lingering(t *testing.T, s *Session, tag namespace.Tag, mode session.Mode) (linger func()) {
	t.Helper()
	shape := shapeOf(tag, mode)
	const pause = "pg_catalog.length(pg_catalog.pg_sleep(0.001)::pg_catalog.text)" // 0
	try := strings.Replace(shape.try(), "SELECT ", "SELECT "+pause+" = 0 AND ", 1) + " + " + pause
	statement, err := s.link.conn.Prepare(t.Context(), "lingering", try, nil)
	require.NoError(t, err)
	return func() { s.link.statements.try[shape.index()] = statement }
}

func TestCanceledStatementsNeitherLeakALockNorLoseOne(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for name, tag := range map[string]namespace.Tag{"pair": pairKey, "pair beside another": pairKey, "single": singleKey} {
		for _, mode := range []session.Mode{session.Exclusive, session.Shared} {
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				p, judge := newPool(t, dsn, briefly), connect(t, dsn)
				s, others := acquire(t, p), "0"
				if name == "pair beside another" {
					run(t, s, try(singleKey, session.Exclusive))
					others = "1"
				}
				linger := lingering(t, s, tag, mode)
				hail := startHail(connect(t, dsn), s.PID())
				defer hail.stop()
				n, again := soak.Size(t, 120, 600), 0
				for i := 0; i < n || again == 0 && i < 100*n; i++ {
					if i == n*5/6 {
						linger()
					}
					hail.kick()
					checks := p.Stats().PIDChecks
					ok, err := s.Try(tag, mode)
					require.NoError(t, err)
					require.True(t, ok)
					if p.Stats().PIDChecks > checks+1 {
						again++
					}
					lost := watch(s)
					require.True(t, judge.holds(s.PID(), tag))
					requireNoLoss(t, s, lost)
					hail.kick()
					require.NoError(t, s.Unlock(tag, mode))
					require.Equal(t, others, judge.locks(s.PID()), "something stays locked, or another key is gone")
				}
				assert.Positive(t, again, "no try was hit")
			})
		}
	}
}

func TestPingsThatAreCanceledAreSentAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p, other := newPool(t, dsn, briefly), connect(t, dsn)
	s := take(t, p, pairKey)
	lost := watch(s)
	for p.Stats().Pings < 10 {
		other.cancel(s.PID())
		requireNoLoss(t, s, lost)
	}
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
}

// flaky answers the first few calls with the error of a canceled statement, whose
// effect is not undone.
const flaky = `
CREATE SEQUENCE calls;
CREATE FUNCTION flaky(k1 int, k2 int, failures int, effective bool) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE n bigint := nextval('public.calls');
BEGIN
	IF n <= failures THEN
		IF effective THEN PERFORM pg_advisory_unlock(k1, k2); END IF;
		RAISE EXCEPTION 'canceled' USING ERRCODE = '57014';
	END IF;
	RETURN pg_advisory_unlock(k1, k2);
END $$`

func TestAnUnlockThatIsCanceledIsSentAgain(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		call    string
		several bool // keys on the session
		lost    bool
	}{
		"before its effect":                {call: "($1, $2, 4, false)"},
		"after its effect":                 {call: "($1, $2, 1, true)"},
		"before its effect, several keys":  {call: "($1, $2, 4, false)", several: true},
		"after its effect, several keys":   {call: "($1, $2, 1, true)", several: true},
		"always":                           {call: "($1, $2, 1000, false)", lost: true},
		"always after its effect, several": {call: "($1, $2, 1000, true)", several: true}, // who asks knows that it was given back
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			judge := connect(t, dsn)
			judge.exec(flaky)
			s := take(t, newPool(t, dsn, nil), pairKey)
			if c.several {
				ok, err := s.Try(singleKey, session.Exclusive)
				require.NoError(t, err)
				require.True(t, ok)
			}
			statement, err := s.link.conn.Prepare(t.Context(), "flaky", "SELECT public.flaky"+c.call+", pg_backend_pid()", nil)
			require.NoError(t, err)
			s.link.statements.unlock[shapeOf(pairKey, session.Exclusive).index()] = statement
			err = s.Unlock(pairKey, session.Exclusive)
			if c.lost {
				require.ErrorIs(t, err, session.ErrLost)
				judge.gone(s.PID())
				return
			}
			require.NoError(t, err)
			assert.False(t, judge.holds(s.PID(), pairKey))
			assert.Equal(t, c.several, judge.holds(s.PID(), singleKey))
		})
	}
}

func TestWhatAWaitLeavesIsGivenBackEntirely(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p, judge := newPool(t, dsn, nil), connect(t, dsn)
	const again = "SELECT pg_advisory_lock(7, 9)"
	for _, several := range []bool{false, true} {
		s := acquire(t, p)
		if several {
			ok, err := s.Try(singleKey, session.Exclusive)
			require.NoError(t, err)
			require.True(t, ok)
		}
		for range 3 {
			_, err := queryRow(t.Context(), s.link.conn, again)
			require.NoError(t, err)
		}
		require.NoError(t, s.unlockRest(pairKey, session.Exclusive))
		assert.False(t, judge.holds(s.PID(), pairKey))
		assert.Equal(t, several, judge.holds(s.PID(), singleKey), "another key of the session stays locked")
	}
	// The control: one unlock is not enough.
	s := take(t, p, pairKey)
	_, err := queryRow(t.Context(), s.link.conn, again)
	require.NoError(t, err)
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
	assert.Equal(t, "1", judge.locks(s.PID()))
}

func TestAnotherBackendsAnswerIsALoss(t *testing.T) {
	t.Parallel()
	answers := map[string]func(*Session) error{
		"unlock":  func(s *Session) error { return s.Unlock(pairKey, session.Exclusive) },
		"try":     func(s *Session) error { _, err := s.Try(singleKey, session.Exclusive); return err },
		"wait":    func(s *Session) error { _, err := s.Wait(singleKey, session.Exclusive, time.Second); return err },
		"try any": func(s *Session) error { return s.Run(&session.Op{Any: []namespace.Tag{singleKey}}) },
		"many": func(s *Session) error {
			return s.Run(try(pairOf(1), session.Exclusive), try(pairOf(2), session.Exclusive))
		},
		"holder": func(s *Session) error { _, _, err := s.Holder(pairKey); return err },
	}
	dsn := pgtest.DSN(t)
	for name, ask := range answers {
		t.Run(name, func(t *testing.T) {
			s, judge := take(t, newPool(t, dsn, nil), pairKey), connect(t, dsn)
			pid := s.link.pid
			s.link.pid++ // as if a pooler had moved us
			err := ask(s)
			require.ErrorIs(t, err, session.ErrLost)
			require.ErrorIs(t, err, session.ErrPooler)
			s.Close(false)
			judge.gone(pid)
		})
	}
	t.Run("ping", func(t *testing.T) {
		s := take(t, newPool(t, dsn, briefly), pairKey)
		s.link.pid++
		require.ErrorIs(t, requireLoss(t, s, watch(s)), session.ErrPooler)
	})
}

func TestAReleaseInDoubtClosesTheConnection(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p, judge := newPool(t, dsn, nil), connect(t, dsn)
	s := take(t, p, pairKey)
	s.Close(true)
	judge.gone(s.PID())

	s = take(t, p, pairKey)
	require.NoError(t, s.Unlock(pairKey, session.Exclusive))
	s.Close(true)
	next := acquire(t, p)
	assert.Equal(t, s.PID(), next.PID(), "the control: a session without a lock is used again")
	s.Close(false)
	s.Close(true)
	ok, err := next.Try(pairKey, session.Exclusive)
	require.NoError(t, err, "an ended session cannot touch its connection's next one")
	assert.True(t, ok)
}
