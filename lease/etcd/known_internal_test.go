package etcd

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
