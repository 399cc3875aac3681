package pgsession

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// shown is what the server shows of a session: its state, when its transaction began, and
// whether that has a snapshot or a number.
func (b bystander) shown(pid uint32) (state, begun string, young bool) {
	row := b.exec(fmt.Sprintf(`SELECT state, coalesce(xact_start::text, ''), backend_xmin IS NULL AND backend_xid IS NULL
		FROM pg_stat_activity WHERE pid = %d`, pid))
	return row[0], row[1], row[2] == "t"
}

func TestASessionOfManyLocksHasTheBatchesOfABusyTimeShareATransactionWithoutASnapshot(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, judge := acquire(t, newPool(t, dsn, nil)), connect(t, dsn)
	fill(t, s, manyLocks)
	state, _, _ := judge.shown(s.PID())
	require.Equal(t, "idle", state)
	cycle := func(ops ...*session.Op) (begun string) {
		t.Helper()
		run(t, s, ops...)
		state, begun, young := judge.shown(s.PID())
		require.Equal(t, "idle in transaction", state)
		require.True(t, young, "it holds back VACUUM")
		return begun
	}
	one, two, three := try(pairOf(1), session.Exclusive), try(singleOf(1), session.Exclusive), try(pairOf(2), session.Shared)
	first := cycle(one)
	s.begun = time.Now().Add(patience) // it does not become too old while a busy machine is at it
	require.Equal(t, first, cycle(two, three), "it is the same transaction")
	require.Equal(t, first, cycle(unlockOf(one), unlockOf(two), unlockOf(three)))
	require.Equal(t, strconv.Itoa(manyLocks), judge.locks(s.PID()))

	s.begun = time.Now().Add(-longestTransaction - time.Second)
	require.NotEqual(t, first, cycle(one), "it has become too old")

	lost := watch(s)
	awaiting.Until(t, patience, func() bool {
		state, begun, _ := judge.shown(s.PID())
		return state == "idle" && begun == ""
	}, "the watch ends it")
	requireNoLoss(t, s, lost)
	require.Equal(t, strconv.Itoa(manyLocks+1), judge.locks(s.PID()), "the locks stay")
	cycle(unlockOf(one))
}

func TestASharedTransactionEndsWithWhatIsNotForIt(t *testing.T) {
	t.Parallel()
	turnstile := singleOf(99)
	shared := func(i int) *session.Op {
		return &session.Op{Tag: pairOf(i), Mode: session.Shared, Turnstile: turnstile}
	}
	for name, end := range map[string]func(s *Session) error{
		"a ping":     func(s *Session) error { return s.Ping() },
		"a question": func(s *Session) error { _, _, err := s.Holder(pairKey); return err },
		"a query": func(s *Session) error {
			row, err := s.Query("SELECT pg_catalog.current_setting('transaction_isolation'), pg_catalog.pg_backend_pid()")
			return errors.Join(err, expect(err != nil || row[0] == "read committed"))
		},
		"a wait": func(s *Session) error {
			held, err := s.Wait(pairKey, session.Exclusive, time.Second)
			return errors.Join(err, expect(held))
		},
		"a turnstile": func(s *Session) error {
			op := shared(50)
			return errors.Join(s.Run(op), expect(op.Held))
		},
		"a turnstile among others": func(s *Session) error {
			op := shared(50)
			return errors.Join(s.Run(op, try(pairOf(51), session.Shared), try(pairOf(52), session.Exclusive)), expect(op.Held))
		},
		"a pass": func(s *Session) error { return s.Run(&session.Op{Pass: true, Turnstile: turnstile}) },
		"one of several": func(s *Session) error {
			return s.Run(&session.Op{Any: []namespace.Tag{singleOf(5)}, Turnstile: turnstile})
		},
		"the last of many unlocks": func(s *Session) error {
			return s.Run(&session.Op{Tag: pairOf(10_000), Unlock: true}, &session.Op{Tag: pairOf(1), Unlock: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			s, judge := acquire(t, newPool(t, dsn, nil)), connect(t, dsn)
			fill(t, s, manyLocks)
			run(t, s, try(pairOf(1), session.Exclusive))
			state, _, _ := judge.shown(s.PID())
			require.Equal(t, "idle in transaction", state)
			require.NoError(t, end(s))
			state, _, _ = judge.shown(s.PID())
			require.Equal(t, "idle", state)
			require.True(t, judge.tries(turnstile), "nothing keeps the turnstile")
			require.Equal(t, "0", queryOne(t, s, "SELECT pg_catalog.current_setting('lock_timeout')"), "what a wait sets is gone")
			run(t, s, try(pairOf(2), session.Exclusive))
		})
	}
}

func TestAServerEndsASessionThatIsSilentInItsTransaction(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, judge := acquire(t, newPool(t, dsn, briefly)), connect(t, dsn)
	fill(t, s, manyLocks)
	run(t, s, try(pairOf(1), session.Exclusive))
	until := s.deadline.Load()
	judge.gone(s.PID())
	require.Less(t, until, int64(s.from.clock.At(time.Now())), "its owner did not believe in it any more")
	require.ErrorIs(t, s.Do([]*session.Op{try(pairOf(2), session.Exclusive)}, patience), session.ErrLost)
}

func expect(ok bool) error {
	if ok {
		return nil
	}
	return errors.New("not so")
}

// tries takes a lock and gives it back.
func (b bystander) tries(tag namespace.Tag) bool {
	k, _ := tag.Single()
	return b.exec(fmt.Sprintf("SELECT pg_try_advisory_xact_lock(%d)", k))[0] == "t"
}

func queryOne(t *testing.T, s *Session, sql string) string {
	t.Helper()
	row, err := s.Query(sql + ", pg_catalog.pg_backend_pid()")
	require.NoError(t, err)
	return row[0]
}
