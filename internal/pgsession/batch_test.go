package pgsession

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/namespace"
)

func pairOf(i int) namespace.Tag {
	return namespace.Tag{ClassID: 7, ObjID: uint32(i), ObjSubID: namespace.PairForm}
}

func singleOf(i int) namespace.Tag {
	return namespace.Tag{ClassID: 1 << 20, ObjID: uint32(i), ObjSubID: namespace.SingleForm}
}

func try(tag namespace.Tag, mode session.Mode) *session.Op { return &session.Op{Tag: tag, Mode: mode} }

func unlockOf(op *session.Op) *session.Op {
	return &session.Op{Tag: op.Tag, Mode: op.Mode, Unlock: true}
}

// run runs a batch to its end.
func run(t *testing.T, s *Session, ops ...*session.Op) {
	t.Helper()
	require.NoError(t, s.Do(ops, patience))
}

func TestABatchAnswersEachOperation(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p, judge := newPool(t, dsn, nil), connect(t, dsn)
	s := acquire(t, p)
	for i := range 7 { // some keys of each kind belong to others
		judge.exec(fmt.Sprintf("SELECT pg_advisory_lock(7, %d), pg_advisory_lock(%d)", 3*i+1, int64(1<<20)<<32|int64(3*i+1)))
	}
	for _, size := range []int{1, 2, 3, 20} {
		var ops []*session.Op
		for i := range size {
			ops = append(ops, try(pairOf(i), session.Exclusive), try(singleOf(i), session.Exclusive),
				try(pairOf(100+i), session.Shared), try(singleOf(100+i), session.Shared))
		}
		run(t, s, ops...)
		var unlocks []*session.Op
		for _, op := range ops {
			require.NoError(t, op.Err)
			require.Equal(t, op.Tag.ObjID >= 100 || op.Tag.ObjID%3 != 1, op.Held, "%v", op.Tag)
			require.Equal(t, op.Held, judge.holds(s.PID(), op.Tag), "%v", op.Tag)
			if op.Held {
				unlocks = append(unlocks, unlockOf(op))
			}
		}
		next := try(pairOf(1000), session.Exclusive) // unlocks and a try of one kind
		run(t, s, append(unlocks, next)...)
		require.True(t, next.Held)
		require.Equal(t, "1", judge.locks(s.PID()), "each was locked once")
		run(t, s, unlockOf(next))
		require.Equal(t, "0", judge.locks(s.PID()))
	}
	s.Close(true)
	assert.EqualValues(t, 1, p.pool.Stat().IdleConns(), "it holds nothing and is used again")
}

// trip replaces the statement for many pair keys by one that fails once, at the row
// with this ordinal.
func trip(t *testing.T, s *Session, ordinal int, how string) {
	t.Helper()
	name := fmt.Sprintf("trip_%d", ordinal)
	require.NoError(t, s.endTransaction()) // it would take the sequence back
	_, err := queryRow(t.Context(), s.link.conn, `DO $$ BEGIN CREATE TEMPORARY SEQUENCE IF NOT EXISTS trips; END $$;
		SELECT setval('pg_temp.trips', 1, false)`)
	require.NoError(t, err)
	const a, b = "(k >> 32)::int4", "((k << 32) >> 32)::int4"
	sql := fmt.Sprintf(`SELECT count(*), array_agg(k) FILTER (WHERE NOT ok), pg_backend_pid() FROM (SELECT k, CASE
		WHEN o = %d AND nextval('pg_temp.trips') = 1 THEN %s
		WHEN o <= cardinality($1::int8[]) THEN pg_advisory_unlock(%[3]s, %[4]s) ELSE pg_try_advisory_lock(%[3]s, %[4]s) END AS ok
		FROM unnest($1::int8[] || $2::int8[]) WITH ORDINALITY AS keys(k, o)) AS called`, ordinal, how, a, b)
	st, err := s.link.conn.Prepare(t.Context(), name, sql, nil)
	require.NoError(t, err)
	s.link.statements.batch[shape{pair: true}.index()] = st
}

const (
	canceling = "pg_cancel_backend(pg_backend_pid())" // and goes on until the server looks
	dividing  = "1/(o-o) = 1"
)

func TestABatchThatFailsAnywhereLeavesNothingThatNobodyOwns(t *testing.T) {
	t.Parallel()
	const n = 6
	for _, how := range []string{canceling, dividing} {
		for ordinal := 1; ordinal <= 2*n; ordinal++ {
			others := 0
			if ordinal%n == 2 { // an unlock and a try, in a transaction that batches share
				others = manyLocks
			}
			t.Run(fmt.Sprintf("%s at %d beside %d locks", how, ordinal, others), func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				s, judge := acquire(t, newPool(t, dsn, nil)), connect(t, dsn)
				fill(t, s, others)
				judge.exec("SELECT pg_advisory_lock(7, 2)")
				var old, ops []*session.Op
				for i := range n {
					old = append(old, try(pairOf(100+i), session.Exclusive))
				}
				run(t, s, old...)
				for i := range n {
					ops = append(ops, unlockOf(old[i]), try(pairOf(i), session.Exclusive))
				}
				trip(t, s, ordinal, how)
				run(t, s, ops...)
				failed := 0
				for _, op := range ops {
					held := judge.holds(s.PID(), op.Tag)
					switch {
					case op.Unlock:
						require.NoError(t, op.Err)
						require.False(t, held, "an unlock is done in any case")
					case op.Err != nil:
						failed++
						require.False(t, op.Held)
						require.False(t, held)
					default:
						require.Equal(t, op.Held, held)
						require.Equal(t, op.Tag.ObjID != 2, held)
					}
				}
				if how == canceling {
					require.Zero(t, failed, "what was canceled is done again")
				} else {
					require.Positive(t, failed)
				}
				var unlocks []*session.Op
				for _, op := range ops {
					if op.Held {
						unlocks = append(unlocks, unlockOf(op))
					}
				}
				if len(unlocks) > 0 {
					run(t, s, unlocks...)
				}
				require.Equal(t, strconv.Itoa(others), judge.locks(s.PID()), "each was locked once")
				require.NotEqual(t, session.Lost, s.state(time.Now()))
			})
		}
	}
}

// The control: without the question what is held, the rows before the one that
// failed are phantoms.
func TestWithoutResolutionABatchThatFailsLeavesPhantoms(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, judge := acquire(t, newPool(t, dsn, nil)), connect(t, dsn)
	trip(t, s, 5, dividing)
	s.batch = &batch{}
	var ops []*session.Op
	for i := range 8 {
		ops = append(ops, try(pairOf(i), session.Exclusive))
	}
	require.NoError(t, s.send(s.batch, ops))
	for done := false; !done; {
		var err error
		done, err = s.step(s.batch)
		require.NoError(t, err)
	}
	require.Error(t, s.judge(s.batch))
	for _, op := range ops {
		require.False(t, op.Held)
	}
	require.Equal(t, "4", judge.locks(s.PID()))
}

// fill takes so many locks.
func fill(t *testing.T, s *Session, n int) {
	t.Helper()
	var ops []*session.Op
	for i := range n {
		ops = append(ops, try(pairOf(10_000+i), session.Exclusive))
	}
	if n > 0 {
		run(t, s, ops...)
	}
}

func TestABatchThatIsPendingGoesOnOnAnotherGoroutine(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p, judge := newPool(t, dsn, nil), connect(t, dsn)
	s := acquire(t, p)
	trip(t, s, 2, "pg_sleep(2) IS NOT NULL AND pg_try_advisory_lock(7, 2)")
	ops := []*session.Op{try(pairOf(1), session.Exclusive), try(pairOf(2), session.Exclusive), try(pairOf(3), session.Exclusive)}
	require.ErrorIs(t, s.Do(ops, time.Millisecond), session.ErrPending)
	done := make(chan error)
	go func() { done <- s.Do(nil, 0) }()
	require.NoError(t, <-done)
	for _, op := range ops {
		require.True(t, op.Held)
		require.True(t, judge.holds(s.PID(), op.Tag))
	}
	ok, err := s.Try(pairOf(4), session.Exclusive)
	require.NoError(t, err)
	require.True(t, ok, "the connection is in step")
}

func TestABatchDoesNotWaitLongForAPing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p, proxy := throughProxy(t, dsn, func(c *Config) { c.T = 6 * time.Second })
	s := acquire(t, p)
	lost := watch(s)
	watched(t, s)
	proxy.Set(faultproxy.Hold)
	awaiting.Until(t, patience, func() bool { return s.pingSent.Load() != 0 })
	op := try(pairOf(1), session.Exclusive)
	require.ErrorIs(t, s.Do([]*session.Op{op}, time.Millisecond), session.ErrPending)
	require.False(t, op.Held)
	proxy.Set(faultproxy.Pass)
	require.NoError(t, s.Do(nil, 0))
	require.True(t, op.Held, "it went out after the ping")
	requireNoLoss(t, s, lost)
	run(t, s, unlockOf(op))
}

func TestABatchOnASessionThatTheServerEndsIsALoss(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, admin := acquire(t, newPool(t, dsn, nil)), connect(t, dsn)
	trip(t, s, 2, "pg_sleep(30) IS NULL")
	ops := []*session.Op{try(pairOf(1), session.Exclusive), try(pairOf(2), session.Exclusive)}
	require.ErrorIs(t, s.Do(ops, time.Millisecond), session.ErrPending)
	awaiting.Until(t, patience, func() bool { // a server that has not read the batch resets the connection, and its words are gone
		return admin.exec("SELECT coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = " + format(s.PID()))[0] == "PgSleep"
	})
	admin.terminate(s.PID())
	err := s.Do(nil, 0)
	require.ErrorIs(t, err, session.ErrLost)
	require.ErrorContains(t, err, "57P01")
	require.ErrorIs(t, s.Do(ops, time.Second), session.ErrLost)
	admin.gone(s.PID())
}

func TestAnUnlockInABatchOfWhatTheServerDoesNotHoldIsALoss(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 3} { // the plain statement, and the one for many
		s := acquire(t, newPool(t, pgtest.DSN(t), nil))
		ops := []*session.Op{{Tag: pairOf(0), Unlock: true}}
		for i := range others {
			ops = append(ops, try(pairOf(i+1), session.Exclusive))
		}
		err := s.Do(ops, patience)
		require.ErrorIs(t, err, session.ErrLost)
		require.ErrorIs(t, err, session.ErrNotHeld)
	}
}

func TestHolderTellsWhatTheRoleMaySee(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	connect(t, server.DSN("")).exec("CREATE ROLE plain LOGIN")
	p := newPool(t, server.DSN(""), nil)
	holder := acquire(t, p)
	ok, err := holder.Try(pairKey, session.Shared)
	require.NoError(t, err)
	require.True(t, ok)

	seen, ok, err := acquire(t, p).Holder(pairKey)
	require.NoError(t, err)
	require.True(t, ok)
	assert.WithinDuration(t, time.Now(), seen.BackendStart, time.Minute)
	seen.BackendStart = time.Time{}
	assert.Equal(t, session.Holder{
		PID: holder.PID(), ApplicationName: "pglatch test", ClientAddr: "127.0.0.1", State: "idle", Mode: session.Shared, Whose: session.OurLocker,
	}, seen)

	plain := acquire(t, newPool(t, pgtest.As(t, server.DSN(""), "plain"), nil))
	seen, ok, err = plain.Holder(pairKey)
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, session.Holder{PID: holder.PID(), ApplicationName: "pglatch test", Mode: session.Shared}, seen)

	_, ok, err = plain.Holder(singleKey)
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestATryOfAnyTakesTheFirstFreeKeyAndNoOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	p, judge := newPool(t, dsn, nil), connect(t, dsn)
	tags := make([]namespace.Tag, 50)
	for i := range tags {
		tags[i] = namespace.SingleRaw(int64(i) - 25).Tag()
	}
	other := acquire(t, p)
	for _, tag := range tags[:20] {
		ok, err := other.Try(tag, session.Exclusive)
		require.NoError(t, err)
		require.True(t, ok)
	}
	s := acquire(t, p)
	op, beside := &session.Op{Any: tags}, try(pairOf(1), session.Exclusive)
	require.NoError(t, s.Run(op, beside))
	assert.Equal(t, 20, op.Index)
	assert.True(t, op.Held)
	assert.True(t, beside.Held)
	assert.True(t, judge.holds(s.PID(), tags[20]))
	assert.Equal(t, "2", judge.locks(s.PID()), "no try follows the first that succeeds")

	for _, none := range [][]namespace.Tag{tags[:20], {}} {
		op = &session.Op{Any: none}
		require.NoError(t, acquire(t, p).Run(op))
		assert.Equal(t, -1, op.Index)
		assert.False(t, op.Held)
	}
}

func TestAQuestionWhoHoldsALockGoesOnWhenItsAnswerComesLate(t *testing.T) {
	t.Parallel()
	p, proxy := throughProxy(t, pgtest.DSN(t), nil)
	holder, s := take(t, p, pairKey), acquire(t, p)
	proxy.Set(faultproxy.Hold)
	ask := &session.Op{Tag: pairKey, Holder: &session.Holder{}}
	free, taken := &session.Op{Tag: singleKey, Holder: &session.Holder{}}, try(pairOf(1), session.Exclusive)
	require.ErrorIs(t, s.Do([]*session.Op{ask, free, taken}, time.Millisecond), session.ErrPending)
	proxy.Set(faultproxy.Pass)
	require.NoError(t, s.Do(nil, 0))
	require.True(t, ask.Held)
	assert.Equal(t, holder.PID(), ask.Holder.PID)
	assert.False(t, free.Held)
	require.True(t, taken.Held, "a question beside a try")
	run(t, s, unlockOf(taken))
	assert.Zero(t, s.locks)
}
