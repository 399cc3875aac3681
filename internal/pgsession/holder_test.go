package pgsession

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/namespace"
)

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
	op := &session.Op{Any: tags}
	require.NoError(t, s.Run(op))
	assert.Equal(t, 20, op.Index)
	assert.True(t, judge.holds(s.PID(), tags[20]))
	assert.Equal(t, "1", judge.locks(s.PID()))

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
