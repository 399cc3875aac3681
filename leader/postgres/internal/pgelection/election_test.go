package pgelection_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/postgres/internal/pgelection"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = await.Soon

var pairKey = namespace.Pair(7, 9).Tag()

// dial returns a session of its own, closed at the end of the test.
func dial(t *testing.T, dsn string) *pgsession.Session {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	d := pgsession.NewDialer(pgsession.Config{ConnConfig: cc, T: time.Minute, ApplicationName: "pglatch test"})
	s, err := d.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(false); d.Close() })
	return s
}

// unlockAll gives back all that the session holds.
func unlockAll(t *testing.T, s *pgsession.Session) {
	t.Helper()
	_, err := s.Query("SELECT pg_catalog.pg_advisory_unlock_all(), pg_catalog.pg_backend_pid()")
	require.NoError(t, err)
}

// A judge says what the server says.
type judge struct {
	t    *testing.T
	conn *pgx.Conn
}

func connect(t *testing.T, dsn string) judge {
	t.Helper()
	conn := pgtest.Connect(t, dsn)
	return judge{t, conn}
}

func (j judge) exec(sql string) {
	j.t.Helper()
	_, err := j.conn.Exec(context.Background(), sql)
	require.NoError(j.t, err)
}

// gone blocks until a backend has ended.
func (j judge) gone(pid uint32) {
	j.t.Helper()
	await.Until(j.t, patience, func() bool {
		var n int
		err := j.conn.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n)
		return err == nil && n == 0
	})
}

func TestIncarnationsAreThoseOfOtherSessionsOfTheElectionOnly(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, other, judge := dial(t, dsn), dial(t, dsn), connect(t, dsn)
	key := namespace.Pair(7, 9)
	election := electionkeys.Of(key.Tag())
	none := func() {
		t.Helper()
		_, found, err := pgelection.Incarnation(s, key)
		require.NoError(t, err)
		require.False(t, found)
	}
	seize(t, s, election.Incarnation(1))
	seize(t, other, electionkeys.Of(namespace.Pair(7, 10).Tag()).Incarnation(1))
	none()
	seize(t, other, election.Incarnation(1<<32-1))
	holder, found, err := pgelection.Incarnation(s, key)
	require.NoError(t, err)
	require.True(t, found)
	assert.Equal(t, session.Holder{PID: other.PID(), ApplicationName: "pglatch test"}, holder)
	unlockAll(t, other)
	none()
	for _, tag := range []namespace.Tag{election.Guard(), election.Incarnation(3)} { // what guards share, and what those try that are refused
		k, _ := tag.Single()
		judge.exec("BEGIN; SELECT pg_advisory_xact_lock_shared(" + strconv.FormatInt(k, 10) + ")")
		none()
		judge.exec("ROLLBACK")
	}
}

func seize(t *testing.T, s *pgsession.Session, tag namespace.Tag) {
	t.Helper()
	ok, err := s.Try(tag, session.Exclusive)
	require.NoError(t, err)
	require.True(t, ok)
}

func TestAnIncarnationOfAnotherElectionOfTheSameClassIsPassedOver(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, foreign, own := dial(t, dsn), dial(t, dsn), dial(t, dsn)
	ours, theirs := namespace.Pair(1, 29674), namespace.Pair(1, 32989)
	require.Equal(t, electionkeys.Of(ours.Tag()).ClassID(), electionkeys.Of(theirs.Tag()).ClassID())
	seize(t, s, ours.Tag())
	seize(t, foreign, theirs.Tag())
	seize(t, foreign, electionkeys.Of(theirs.Tag()).Incarnation(7))
	_, found, err := pgelection.Incarnation(s, ours)
	require.NoError(t, err)
	assert.False(t, found)

	// A session that has an incarnation and no election's lock can be of this election.
	seize(t, own, electionkeys.Of(ours.Tag()).Incarnation(8))
	seize(t, own, namespace.Pair(3, 3).Tag())
	holder, found, err := pgelection.Incarnation(s, ours)
	require.NoError(t, err)
	assert.True(t, found)
	assert.Equal(t, own.PID(), holder.PID)
	unlockAll(t, own)

	require.NoError(t, foreign.Unlock(theirs.Tag(), session.Exclusive))
	_, found, err = pgelection.Incarnation(s, ours)
	require.NoError(t, err)
	assert.True(t, found, "nothing says any more whose it is")
}

func TestTerminateEndsTheSessionThatIsMeantAndNoOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, victim, judge := dial(t, dsn), dial(t, dsn), connect(t, dsn)
	start, err := pgelection.BackendStart(victim)
	require.NoError(t, err)
	ok, err := victim.Try(pairKey, session.Exclusive)
	require.NoError(t, err)
	require.True(t, ok)
	holder, ok, err := s.Holder(pairKey)
	require.NoError(t, err)
	require.True(t, ok)
	assert.True(t, start.Equal(holder.BackendStart))

	for _, wrong := range []struct {
		pid   uint32
		start time.Time
		name  string
	}{
		{victim.PID() + 1, start, "pglatch test"},
		{victim.PID(), start.Add(time.Microsecond), "pglatch test"},
		{victim.PID(), start, "pglatch' OR true --"},
	} {
		ok, err = pgelection.Terminate(s, wrong.pid, wrong.start, wrong.name)
		require.NoError(t, err)
		assert.False(t, ok)
		require.NoError(t, victim.Ping())
	}
	ok, err = pgelection.Terminate(s, victim.PID(), start, "pglatch test")
	require.NoError(t, err)
	assert.True(t, ok)
	judge.gone(victim.PID())
	require.ErrorIs(t, victim.Ping(), session.ErrLost)
	ok, err = pgelection.Terminate(s, victim.PID(), start, "pglatch test")
	require.NoError(t, err)
	assert.False(t, ok)
}
