package leased_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/lease"
)

func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(i)
	}
	return all
}

// at sets a fault for an operation on a shard; "" = on any.
func at(operation, shard string, err error) func(string, string) error {
	return func(o, s string) error {
		if o == operation && (shard == "" || s == shard) {
			return err
		}
		return nil
	}
}

func TestOneOperationRenewsAllThatANodeOwns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a := open(t, f, "a")
		claim(t, a, names(1000)...)
		f.counted()
		assert.Empty(t, renew(t, a))
		assert.Equal(t, map[string]int{"renew all": 1, "renewals": 1001}, f.counted())
	})
}

// A plain store renews leases one by one.
type plain struct{ lease.Store }

func TestAStoreThatRenewsOneByOneDoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, err := newBackend(t, plain{f}).Open(t.Context(), self("a"), ttl)
		require.NoError(t, err)
		claim(t, a, names(100)...)
		f.counted()
		assert.Empty(t, renew(t, a))
		assert.Equal(t, map[string]int{"renew": 101}, f.counted())
		f.takeAway(t, "shard/99", "a")
		assert.Equal(t, []string{"99"}, renew(t, a))
	})
}

func TestAClaimWhoseAnswersWereLostHoldsNothingAfterARelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, b := open(t, f, "a"), open(t, f, "b")
		f.set(func(f *faulty) { f.after = at("acquire", "2", errReset) })
		_, err := a.Claim(t.Context(), []string{"1", "2", "3"})
		require.ErrorIs(t, err, errReset)
		assert.NotContains(t, claim(t, b, "2"), "2", "control: it was granted")
		f.set(func(f *faulty) { f.after = nil })
		require.NoError(t, a.Release(t.Context(), []string{"1", "2", "3"}))
		assert.Len(t, claim(t, b, "1", "2", "3"), 3)
	})
}

func TestWhatAReleaseCouldNotReleaseEndsByTheTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, b := open(t, f, "a"), open(t, f, "b")
		claim(t, a, "1", "2")
		f.set(func(f *faulty) { f.before = at("release", "1", errReset) })
		require.ErrorIs(t, a.Release(t.Context(), []string{"1"}), errReset)
		f.set(func(f *faulty) { f.before = nil })
		for range 4 {
			assert.Empty(t, claim(t, b, "1", "2"), "control: it was not released")
			time.Sleep(ttl / 5)
			assert.Empty(t, renew(t, a))
			renew(t, b)
		}
		time.Sleep(ttl / 5)
		assert.Contains(t, claim(t, b, "1", "2"), "1", "nobody renews it")
	})
}

func TestATermIsGrantedOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(f *faulty){
		"the release was not done":          func(f *faulty) { f.before = at("release", "1", errReset) },
		"the release's answer was lost":     func(f *faulty) { f.after = at("release", "1", errReset) },
		"the release was done (no failure)": func(*faulty) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFaulty()
				a := open(t, f, "a")
				first := claim(t, a, "1")["1"]
				f.set(fault)
				_ = a.Release(t.Context(), []string{"1"})
				f.set(func(f *faulty) { f.before, f.after = nil, nil })
				second := claim(t, a, "1")["1"]
				assert.Positive(t, second.Compare(first), "%v follows %v", second, first)
			})
		})
	}
}

// The session is believed to last from the start of the renewal; so does what was granted
// after a request from before it.
func TestAClaimThatARenewalOvertookLastsAsLongAsTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, b := open(t, f, "a"), open(t, f, "b")
		f.set(func(f *faulty) {
			f.after = func(operation, _ string) error {
				if operation == "acquire" {
					time.Sleep(ttl / 3) // on its way back
				}
				return nil
			}
		})
		var wg sync.WaitGroup
		wg.Go(func() { claim(t, a, "1") })
		time.Sleep(ttl / 4)
		renew(t, a)
		renewed := time.Now()
		wg.Wait()
		f.set(func(f *faulty) { f.after = nil })
		time.Sleep(time.Until(renewed.Add(ttl - time.Millisecond)))
		assert.Empty(t, claim(t, b, "1"))
	})
}

func TestAReleaseBesideARenewalIsNoLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a := open(t, f, "a")
		claim(t, a, "1", "2")
		renew(t, a)
		f.set(func(f *faulty) {
			f.before = func(operation, _ string) error {
				if operation == "renew all" {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		var wg sync.WaitGroup
		wg.Go(func() { assert.Empty(t, renew(t, a)) })
		time.Sleep(time.Second / 2)
		require.NoError(t, a.Release(t.Context(), []string{"1"}))
		wg.Wait()
		assert.Empty(t, renew(t, a))
	})
}

func TestAShardThatIsTakenAwayIsLostAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a, b := open(t, f, "a"), open(t, f, "b")
		claim(t, a, "1", "2")
		renew(t, a)
		known := look(t, b, 0)
		f.takeAway(t, "shard/1", "a")
		assert.Equal(t, []string{"1"}, renew(t, a))
		assert.Empty(t, renew(t, a), "it is said once")
		look(t, a, 0)
		assert.Equal(t, map[string]string{"2": "a"}, look(t, b, known.Version).Owners, "and others see it")
		assert.Len(t, claim(t, b, "1", "2"), 1)
	})
}

// Between the end of a claim and the moment at which its caller knows what it got, a loss would be
// told to nobody.
func TestALossIsNotToldBeforeTheClaimIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a := open(t, f, "a")
		claim(t, a, "1")
		f.takeAway(t, "shard/1", "a")
		lost, err := a.Renew(t.Context(), ttl) // it can have begun before the claim returned
		require.ErrorContains(t, err, "as soon as it was claimed")
		require.NotErrorIs(t, err, leader.ErrLost)
		assert.Empty(t, lost)
		assert.Equal(t, []string{"1"}, renew(t, a))
	})
}

func TestABusyStoreSlowsClaimsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a := open(t, f, "a")
		var mu sync.Mutex
		budget := 10.0
		last := time.Now()
		f.set(func(f *faulty) {
			f.before = func(operation, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				budget += 10 * time.Since(last).Seconds()
				last = time.Now()
				if budget < 1 {
					return busy()
				}
				budget--
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(2 * time.Second)
			renewal, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, err := a.Renew(renewal, ttl)
			assert.NoError(t, err, "a renewal goes before claims")
		}()
		grants, err := a.Claim(ctx, names(1000))
		require.NoError(t, err)
		assert.InDelta(t, 10+10*5*2/3, len(grants), 8, "what the limit allows")
		<-done
		f.set(func(f *faulty) { f.before = at("acquire", "", busy()) })
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = a.Claim(ctx, names(1000)[900:])
		require.ErrorIs(t, err, lease.ErrBusy, "nothing was got, and that is said")
	})
}

func TestARenewalThatTheStoreWasBusyWithIsTriedAgainAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a := open(t, f, "a")
		claim(t, a, names(10)...)
		f.counted()
		refused := 0
		f.set(func(f *faulty) {
			f.each = func(r lease.RenewRequest) error {
				if r.Name == group+"/shard/3" && refused < 2 {
					refused++
					return busy()
				}
				return nil
			}
		})
		assert.Empty(t, renew(t, a))
		assert.Equal(t, map[string]int{"renew all": 3, "renewals": 11 + 1 + 1}, f.counted())
	})
}

func TestAStoreThatGrantsLessIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		f.most = time.Second
		_, err := newBackend(t, f).Open(t.Context(), self("a"), ttl)
		require.ErrorIs(t, err, leader.ErrPermanent)
		require.ErrorContains(t, err, "use a LeaseDuration of no more")
	})
}

func TestASessionThatLeavesSaysNothingIfItsLeasesHaveEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a := open(t, f, "a")
		claim(t, a, "1")
		time.Sleep(ttl)
		require.NoError(t, a.Leave(t.Context()))
		_, err := a.Renew(t.Context(), ttl)
		require.ErrorIs(t, err, leader.ErrLost)
	})
}

// All that a claim of too much had got would be released again, each time.
func TestASlowStoreGrantsWhatItCanInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		a := open(t, f, "a")
		f.set(func(f *faulty) {
			f.before = func(string, string) error { time.Sleep(time.Second); return nil }
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		grants, err := a.Claim(ctx, names(1000))
		require.NoError(t, err)
		assert.Len(t, grants, 4*64)
	})
}
