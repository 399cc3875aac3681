package etcd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// wrong are wall clocks that say anything.
var wrong = []time.Time{{}, start.Add(-24 * time.Hour), start, start.Add(10 * time.Second), start.Add(100 * 365 * 24 * time.Hour)}

func TestNoWallClockDecidesWhatStateANameIsIn(t *testing.T) {
	t.Parallel()
	row := rules.Row{
		Claim: lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 7}, AcquiredAt: start, ExpiresAt: start.Add(time.Minute),
		LockDelay: time.Minute, MinHold: 2 * time.Minute, MaxLifetime: time.Hour, Version: 9,
	}
	released := row
	released.ReleasedAt = start.Add(time.Second)
	some := func(k ...kind) (m [kinds]mark) {
		for _, k := range k {
			m[k] = mark{1, 1, 1, 1, false}
		}
		return m
	}
	for name, c := range map[string]struct {
		row       rules.Row
		marks     [kinds]mark
		state     lease.State
		available bool
	}{
		"held":                         {row, some(held, delayed, kept, alive), lease.Held, false},
		"its lifetime is over":         {row, some(held), lease.Expired, true},
		"expired, and delayed":         {row, some(delayed, alive), lease.Expired, false},
		"expired, and kept":            {row, some(kept, alive), lease.Expired, false},
		"expired":                      {row, some(alive), lease.Expired, true},
		"released, and kept":           {released, some(kept), lease.Free, false},
		"released":                     {released, some(), lease.Free, true},
		"nothing is known of the name": {rules.Row{}, some(), lease.Free, true},
	} {
		for _, wall := range wrong {
			v := &view{row: c.row, marks: c.marks}
			now := v.now(wall)
			assert.Equal(t, c.state, v.row.State(now), "%s, %v", name, wall)
			assert.Equal(t, c.available, !now.Before(v.row.AvailableAt()), "%s, %v", name, wall)
			assert.Equal(t, c.state == lease.Held, v.held(), name)
			if c.row.Token != 0 {
				assert.False(t, now.Before(c.row.AcquiredAt), "the times of a name do not go back: %s, %v", name, wall)
			}
		}
	}
}

// The lock servers of a cluster have clocks that differ by 20 s. The one that is ahead forgets an ended name 20 s
// earlier, and never one that somebody holds or has to wait for.
func TestASweepForgetsAnEndedNameEarlierByTheDifferenceOfTheClocksAndNoOther(t *testing.T) {
	t.Parallel()
	const retention, difference = time.Minute, 20 * time.Second
	row := rules.Row{
		Claim: lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 7}, AcquiredAt: start, ExpiresAt: start.Add(time.Minute),
		LockDelay: time.Minute, MinHold: 2 * time.Minute, Version: 9,
	}
	expired := row
	expired.LockDelay, expired.MinHold = 0, 0
	released := expired
	released.ReleasedAt = start.Add(time.Second)
	set := mark{1, 1, 1, 1, false}
	drops := func(v *view, wall time.Time) bool { return rules.Sweep(v.row, v.now(wall), retention).Drop }
	for name, c := range map[string]struct {
		row   rules.Row
		marks [kinds]mark
		ended time.Time // by the clock of the server that wrote it; zero = it has not ended
	}{
		"released":             {released, [kinds]mark{}, released.ReleasedAt},
		"expired":              {expired, [kinds]mark{}, expired.ExpiresAt},
		"held":                 {row, [kinds]mark{held: set}, time.Time{}},
		"expired, and delayed": {row, [kinds]mark{delayed: set}, time.Time{}},
		"expired, and kept":    {row, [kinds]mark{kept: set}, time.Time{}},
	} {
		v := &view{row: c.row, marks: c.marks}
		if c.ended.IsZero() {
			for _, wall := range wrong {
				assert.False(t, drops(v, wall), "%s, %v", name, wall)
			}
			continue
		}
		for _, ahead := range []time.Duration{0, difference} {
			clock := func(moment time.Time) time.Time { return moment.Add(ahead) } // of the server that sweeps
			due := c.ended.Add(retention - ahead)
			assert.True(t, drops(v, clock(due)), "%s, %v", name, ahead)
			assert.False(t, drops(v, clock(due.Add(-1))), "%s, %v", name, ahead)
		}
	}
}

func TestSecondsAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		lease.MinTTL: 1, time.Second: 1, time.Second + 1: 2, 1999 * time.Millisecond: 2, lease.MaxTTL: 86_400, lease.LongestLifetime: 3_153_600_000,
	} {
		assert.Equal(t, want, seconds(d), d)
	}
}

func TestAMarkIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]mark{
		mark{asked: 5, granted: 6, term: 7}.value():               {lease: 1, asked: 5, granted: 6, term: 7},
		mark{asked: 5, granted: 6, term: 7, shared: true}.value(): {lease: 1, asked: 5, granted: 6, term: 7, shared: true}, "5/6": {}, "5": {}, "": {}, "a/6/7": {},
	} {
		got, err := decodeMark(&mvccpb.KeyValue{Key: []byte("k"), Value: []byte(text), Lease: 1})
		if want.set() {
			require.NoError(t, err)
			require.Equal(t, want, got)
			continue
		}
		require.ErrorContains(t, err, `the key "k" is none of this store's`, text)
	}
	_, err := decodeMark(&mvccpb.KeyValue{Value: []byte("5/6/7")})
	require.Error(t, err, "it is attached to no etcd lease")
}

func TestTheKeysOfANameAreTogetherAndInTheOrderOfNames(t *testing.T) {
	t.Parallel()
	s := &Store{config: Config{Prefix: "p/"}}
	names := []string{" ", "a", "a ", "a/", "a/b", "ab", "b", "é"}
	var keys []string
	for _, name := range names {
		for k := range kinds {
			key := s.key(name, k)
			got, kind, ok := s.parse([]byte(key))
			require.True(t, ok)
			require.Equal(t, name, got)
			require.Equal(t, k, kind)
			require.Less(t, key, s.config.Prefix+name+behind)
			keys = append(keys, key)
		}
	}
	require.True(t, slices.IsSortedFunc(keys, func(a, b string) int {
		x, _, _ := s.parse([]byte(a))
		y, _, _ := s.parse([]byte(b))
		switch {
		case x == y:
			return 0
		case a < b:
			return -1
		}
		return 1
	}))
	_, _, ok := s.parse([]byte(s.eraKey()))
	require.False(t, ok)
	require.Less(t, s.eraKey(), s.config.Prefix+behind)
}

func TestAnEraEndsWithTheHistoryOfItsCluster(t *testing.T) {
	t.Parallel()
	e := era{Cluster: 1, Members: []uint64{1, 2, 3}, Surplus: 100}
	same, other, fewer, shorter := e, e, e, e
	same.Surplus = 70
	other.Cluster = 2
	fewer.Members = []uint64{1}
	shorter.Surplus = -5000
	assert.Empty(t, e.differs(same, false))
	for _, present := range []era{other, fewer, shorter} {
		assert.NotEmpty(t, e.differs(present, false))
	}
	assert.NotEmpty(t, e.differs(same, true))
}

// An error of package lease says that nothing was done, so no such may show through.
func TestADoubtfulOutcomeMatchesNoErrorThatSaysThatNothingWasDone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for range 2 {
		err := doubtful(ctx, undone(t.Context(), errContended))
		require.NotErrorIs(t, err, lease.ErrBusy)
		require.NotErrorIs(t, doubtful(ctx, denied(rpctypes.ErrPermissionDenied)), lease.ErrNotReady)
		cancel(errNoAnswer)
	}
}

// A store of version 0.1.0 would renew the etcd lease of a mark that it can read, and other locks with
// it.
func TestAStoreOfTheFirstVersionFailsForASharedMark(t *testing.T) {
	t.Parallel()
	reads := func(value string) bool { // as 0.1.0 read a mark
		var asked, granted, term int64
		n, _ := fmt.Sscanf(value, "%d/%d/%d", &asked, &granted, &term)
		return n == 3
	}
	m := mark{lease: 1, asked: 60, granted: 61, term: 3}
	assert.True(t, reads(m.value()), "the control")
	m.shared = true
	assert.False(t, reads(m.value()))
	again, err := decodeMark(&mvccpb.KeyValue{Value: []byte(m.value()), Lease: 1})
	require.NoError(t, err)
	assert.Equal(t, m, again)
}

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
