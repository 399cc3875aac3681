package etcd

import (
	"cmp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

func seen(revision int64, made int64) *view {
	return &view{revision: revision, made: made, header: &etcdserverpb.ResponseHeader{Revision: revision, RaftTerm: 3}}
}

func TestAStoreRemembersNoMoreThanSoManyNamesAndTheLatestOnes(t *testing.T) {
	t.Parallel()
	var k views
	for i := range 3 * mostKnown {
		k.put(strconv.Itoa(i), seen(int64(i+1), 1))
		v, _ := k.get(1, "0")
		require.NotNil(t, v, "it is used all the time")
		require.LessOrEqual(t, len(k.recent)+len(k.older), mostKnown)
	}
	v, term := k.get(1, strconv.Itoa(3*mostKnown-1))
	require.EqualValues(t, 3*mostKnown, v.revision)
	require.EqualValues(t, 3, term)
	v, _ = k.get(1, "1")
	require.Nil(t, v)
}

func TestALaterViewIsNotReplacedByAnEarlierOne(t *testing.T) {
	t.Parallel()
	var k views
	k.put("job", seen(7, 1))
	k.put("job", seen(5, 1))
	v, _ := k.get(1, "job")
	require.EqualValues(t, 7, v.revision)
	k.drop("job")
	v, _ = k.get(1, "job")
	require.Nil(t, v)
}

// A new connection may lead to a cluster with another history, in which revisions and terms repeat.
func TestWhatWasKnownBeforeANewConnectionIsForgotten(t *testing.T) {
	t.Parallel()
	s := &Store{}
	s.connections.Store(1)
	s.views.put("job", seen(7, 1))
	s.eras.see(20)
	s.views.saw(1, &etcdserverpb.ResponseHeader{RaftTerm: 4})
	v := s.guess("job")
	require.True(t, v.guess)
	require.EqualValues(t, 20, v.header.Revision, "of all that was seen")
	require.EqualValues(t, 4, v.term())
	require.False(t, s.views.recent["job"].guess, "a view is never changed")

	s.connections.Add(1)
	require.Nil(t, s.guess("job"))
	s.views.put("job", seen(9, 1))
	s.views.saw(1, &etcdserverpb.ResponseHeader{RaftTerm: 9})
	require.Nil(t, s.guess("job"), "an answer on an earlier one comes late")
	s.views.put("job", seen(4, 2))
	require.EqualValues(t, 4, s.guess("job").revision)
	require.EqualValues(t, 3, s.guess("job").term())
	s.forget(0)
	require.Nil(t, s.guess("job"))
}

// The next change is decided by it.
func TestWhatAStoreKnowsOfItsChangeIsWhatAReadWouldShow(t *testing.T) {
	t.Parallel()
	s := &Store{}
	e := era{Base: eraSize}
	metadata := map[string]string{"a": "b"}
	row := rules.Row{
		Claim: lease.Claim{Name: "job", Holder: "a", ID: "x"}, IdempotencyKey: "k", Metadata: metadata,
		AcquiredAt: start, ExpiresAt: start.Add(time.Minute), LockDelay: time.Minute, MinHold: 2 * time.Minute, MaxLifetime: time.Hour,
		Uncounted: 2, LastRelease: "r",
	}
	for _, token := range []uint64{0, eraSize + 3} {
		text, err := encode(row, e.Base, token)
		require.NoError(t, err)
		want, err := decode("job", &mvccpb.KeyValue{Value: []byte(text), ModRevision: 7})
		require.NoError(t, err)
		s.views.forget()
		s.know(&change{v: &view{}, row: row}, e, cmp.Or(token, eraSize+7), &etcdserverpb.ResponseHeader{Revision: 7})
		require.Equal(t, want, s.guess("job").row)
	}
	metadata["a"] = "c"
	require.Equal(t, "b", s.guess("job").row.Metadata["a"], "the caller's map is not the store's")
}

// An etcd lease of several names can be used again when none of its keys is left, and no earlier.
func TestASharedEtcdLeaseIsSpareWhenItsLastKeyHasGone(t *testing.T) {
	t.Parallel()
	s := &Store{spare: spares{free: make(map[int64][]mark)}, retired: make(chan clientv3.LeaseID, 1)}
	own := mark{lease: 1, asked: 60, granted: 60, term: 3}
	shared := s.spare.share(own, 3)
	require.True(t, shared.shared)
	s.retire(shared, shared, mark{lease: 2, asked: 60, granted: 60, term: 3, shared: true}) // the last is another store's
	require.False(t, s.spare.has(60))
	s.retire(shared)
	m, last, ok := s.spare.take(60)
	require.True(t, ok)
	require.True(t, last)
	require.Equal(t, own, m)
	s.retire(shared)
	require.False(t, s.spare.has(60), "it was counted before")

	first := s.spare.share(own, 1)
	for i := range mostShared {
		s.spare.share(mark{lease: clientv3.LeaseID(i + 10), asked: 60}, 1)
	}
	s.retire(first)
	require.False(t, s.spare.has(60), "it was forgotten, because there are so many")
	require.LessOrEqual(t, len(s.spare.keys), mostShared)
	require.Empty(t, s.retired)
}
