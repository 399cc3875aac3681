package leased_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
)

const groupList, shardList = "list /group/", "list /shard/"

func TestALookAtWhatHasNotChangedListsTheGroupAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, b := open(t, f, "a"), open(t, f, "b")
		claim(t, a, names(100)...)
		known := look(t, b, 0).Version
		f.counted()
		for range 10 {
			time.Sleep(ttl / 5)
			renew(t, a)
			renew(t, b)
			assert.Equal(t, driver.View{Version: known}, look(t, b, known))
		}
		calls := f.counted()
		assert.Equal(t, 10, calls[groupList])
		assert.Zero(t, calls[shardList])
		for range 20 {
			time.Sleep(ttl / 5)
			renew(t, a)
			renew(t, b)
			look(t, b, known)
		}
		assert.Equal(t, 1, f.counted()[shardList], "all is read from time to time")
	})
}

func TestWhatADeadNodeOwnedIsSeenToBecomeFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, b := open(t, f, "a"), open(t, f, "b")
		claim(t, a, "1", "2")
		v := look(t, b, 0)
		died := time.Now()
		f.takeAway(t, "group/member/", "a") // which other nodes see some time before the shards' leases end
		for time.Since(died) < ttl+time.Second {
			time.Sleep(ttl / 10)
			renew(t, b)
			if next := look(t, b, v.Version); next.Version != v.Version {
				v = next
			}
		}
		assert.Empty(t, v.Owners)
		assert.Len(t, v.Members, 1)
		assert.Len(t, claim(t, b, "1", "2"), 2)
	})
}

func TestWhatCouldNotBePublishedIsWithTheNextLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, b := open(t, f, "a"), open(t, f, "b")
		known := look(t, b, 0).Version
		f.set(func(f *faulty) { f.before = at("renew", "", errReset) })
		assert.Len(t, claim(t, a, "1"), 1, "the claim has succeeded all the same")
		assert.Equal(t, driver.View{Version: known}, look(t, b, known), "control: nobody sees it")
		f.set(func(f *faulty) { f.before = nil })
		look(t, a, 0)
		assert.Equal(t, map[string]string{"1": "a"}, look(t, b, known).Owners)
	})
}

func TestWhatWasPublishedLateIsPublishedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, b := open(t, f, "a"), open(t, f, "b")
		var old lease.Record
		for r, err := range f.Store.List(t.Context(), lease.ListRequest{Prefix: group + "/group/member/"}) {
			require.NoError(t, err)
			if r.Holder == "a" {
				old = r
			}
		}
		draining := self("a")
		draining.Draining = true
		require.NoError(t, a.Announce(t.Context(), draining))
		_, err := f.Store.Renew(t.Context(), lease.RenewRequest{Claim: old.Claim, TTL: ttl, Metadata: old.Metadata}) // a request that was late
		require.NoError(t, err)
		assert.Contains(t, look(t, b, 0).Members, self("a"), "control: it was")
		look(t, a, 0)
		look(t, a, 0)
		assert.Contains(t, look(t, b, 0).Members, draining)
	})
}

func TestTheLatestSessionSpeaksForItsNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		_ = open(t, f, "a")
		time.Sleep(time.Second)
		heavy := self("a")
		heavy.Weight = 200
		b, err := newBackend(t, f).Open(t.Context(), heavy, ttl)
		require.NoError(t, err)
		for range 10 {
			assert.Equal(t, []driver.Member{heavy}, look(t, b, 0).Members)
		}
	})
}
