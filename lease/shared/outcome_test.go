package shared_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

// assertUnknown refuses the errors which say that a request has changed nothing.
func assertUnknown(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	for _, said := range []error{lease.ErrHeld, lease.ErrStale, lease.ErrExpired, lease.ErrNotFound, lease.ErrInvalid, lease.ErrBusy, lease.ErrNotReady, lease.ErrClosed} {
		assert.NotErrorIs(t, err, said)
	}
}

func TestWhoseSlotIsTakenIsNotToldThatNothingWasDone(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{&lease.BusyError{Cause: errDead}, lease.ErrClosed, lease.ErrNotReady} {
		synctest.Test(t, func(t *testing.T) {
			store := leasetest.NewStore()
			failing := hooked{Store: store, afterRelease: func(lease.Claim) error { return failure }}
			r := ask("a", 1)
			r.IdempotencyKey = "k"
			_, err := locker(t, failing).Acquire(t.Context(), r, 0)
			record, getErr := store.Get(t.Context(), shared.SlotName("job", 1))
			require.NoError(t, getErr)
			require.Equal(t, lease.Held, record.State)
			assertUnknown(t, err)
		})
	}
}

func TestWhoLosesTheGateAgainAndAgainIsNotToldThatNothingWasDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		slow := hooked{Store: store, beforeAcquire: func(r lease.AcquireRequest) {
			if slotOf(r.Name) > 0 {
				bubble.Sleep(shared.DefaultGateTTL)
			}
		}}
		r := ask("a", 1)
		r.IdempotencyKey = "k"
		_, err := locker(t, slow).Acquire(t.Context(), r, 0)
		record, getErr := store.Get(t.Context(), shared.SlotName("job", 1))
		require.NoError(t, getErr)
		require.Equal(t, lease.Held, record.State)
		assertUnknown(t, err)
	})
}

func TestAnExclusiveRequestCanHaveAsMuchMetadataAsAny(t *testing.T) {
	t.Parallel()
	w := ask("writer", 0)
	w.Exclusive = true
	w.Metadata = map[string]string{"note": strings.Repeat("x", lease.MaxMetadata-len("note"))}
	s := acquire(t, locker(t, leasetest.NewStore()), w, 0)
	assert.Equal(t, w.Metadata["note"], s.Metadata["note"])
}

func TestALockDelayKeepsNobodyOutOfALockThatItsRequestNeverGot(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := leasetest.NewStore()
			l := locker(t, store)
			reader := acquire(t, l, ask("reader", 0), 0)
			w := ask("writer", 0)
			w.Exclusive, w.IdempotencyKey, w.LockDelay = true, "k", time.Hour
			if dies {
				w.IdempotencyKey = ""
				_, err := locker(t, handing{&dying{Store: store, left: 4}}).Acquire(t.Context(), w, time.Minute)
				require.ErrorIs(t, err, errDead)
			} else {
				_, err := l.Acquire(t.Context(), w, time.Second)
				require.ErrorIs(t, err, lease.ErrHeld)
			}
			require.NoError(t, store.Release(t.Context(), reader.Claim))
			acquire(t, l, ask("reader", 0), shared.DefaultGateTTL+time.Second)
		})
	}
}

// A handing store is that of a process which is killed, and which can hand leases over.
type handing struct{ *dying }

func (h handing) HandOver(ctx context.Context, r lease.ReleaseRequest, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	dead, carriesOut := h.dies()
	if !dead || carriesOut {
		l, released, acquired = h.Store.(lease.HandOverer).HandOver(ctx, r, next)
	}
	if dead {
		return lease.Lease{}, errDead, errDead
	}
	return l, released, acquired
}

func TestAnExclusiveRequestWithTermsThatDiesAnywhereIsSentAgainAndHasTheLockOnce(t *testing.T) {
	t.Parallel()
	for left := range 5 {
		for _, unsaid := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := leasetest.NewStore()
				w := ask("writer", 0)
				w.Exclusive, w.IdempotencyKey, w.LockDelay, w.Metadata = true, "k", time.Hour, map[string]string{"a": "b"}
				told, err := locker(t, handing{&dying{Store: store, left: left, unsaid: unsaid}}).Acquire(t.Context(), w, 0)
				if err != nil {
					require.ErrorIs(t, err, errDead)
				}
				l := locker(t, store)
				began := time.Now()
				share := acquire(t, l, w, time.Minute)
				assert.LessOrEqual(t, time.Since(began), shared.DefaultGateTTL+shared.DefaultPollInterval)
				if told.ID != "" {
					assert.Equal(t, told.Claim, share.Claim)
				}
				assert.Equal(t, "b", share.Metadata["a"])
				again := acquire(t, l, w, 0)
				assert.Equal(t, share.Claim, again.Claim)
				bubble.Sleep(w.TTL)
				_, err = l.Acquire(t.Context(), ask("reader", 0), 0)
				require.ErrorIs(t, err, lease.ErrHeld, "it expired, and its delay counts")
			})
		}
	}
}

func TestWhoWaitsForTheWholeLockTwiceWithOneKeyHasItOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		reader := acquire(t, locker(t, store), ask("reader", 0), 0)
		w := ask("writer", 0)
		w.Exclusive, w.IdempotencyKey, w.LockDelay = true, "k", time.Minute
		got := make(chan shared.Share, 2)
		for range cap(got) {
			go func() {
				s, err := locker(t, store).Acquire(t.Context(), w, time.Minute)
				assert.NoError(t, err)
				got <- s
			}()
		}
		synctest.Wait()
		require.NoError(t, store.Release(t.Context(), reader.Claim))
		first, second := <-got, <-got
		assert.Equal(t, first.Claim, second.Claim)
		_, err := store.Renew(t.Context(), lease.RenewRequest{Claim: first.Claim, TTL: w.TTL})
		require.NoError(t, err)
	})
}

func TestAMaxLifetimeEndsNoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		l := locker(t, store)
		r := ask("reader", 0)
		r.TTL = 15 * time.Second
		acquire(t, l, r, 0)
		w := ask("writer", 0)
		w.Exclusive, w.MaxLifetime = true, 10*time.Second
		s := acquire(t, l, w, time.Minute)
		assert.Equal(t, w.MaxLifetime, s.Remaining)
	})
}

// A refusing store is busy at the first release of a slot.
type refusing struct {
	lease.Store
	refused *bool
}

func (r refusing) Release(ctx context.Context, c lease.Claim) error {
	if slotOf(c.Name) > 0 && !*r.refused {
		*r.refused = true
		return &lease.BusyError{Cause: errDead}
	}
	return r.Store.Release(ctx, c)
}

func TestASlotThatNobodyWasToldOfIsGivenBackToAStoreThatWasBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, busy := leasetest.NewStore(), false
		ctx, hangUp := context.WithCancel(t.Context())
		ending := hooked{Store: refusing{store, &busy}, beforeRelease: func(lease.Claim) { hangUp() }}
		_, err := locker(t, ending).Acquire(ctx, ask("a", 1), 0)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, busy)
		acquire(t, locker(t, store), ask("b", 1), 0)
	})
}

func TestWhoDoesNotWaitIsRefusedAtOnceWhateverMetadataTheWriterHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		l := locker(t, store)
		w := ask("writer", 0)
		w.Exclusive = true
		s := acquire(t, l, w, 0)
		_, err := store.Renew(t.Context(), lease.RenewRequest{Claim: s.Claim, TTL: w.TTL, Metadata: map[string]string{"done": "half"}})
		require.NoError(t, err)
		began := time.Now()
		_, err = l.Acquire(t.Context(), ask("reader", 0), 0)
		require.ErrorIs(t, err, lease.ErrHeld)
		assert.Zero(t, time.Since(began))
	})
}

var errDead = errors.New("the process is dead")

// A dying store is that of a process which is killed: before an operation, or when it was
// carried out and nobody has heard of it.
type dying struct {
	lease.Store

	left   int  // operations that are answered
	unsaid bool // the next one is carried out
}

func (d *dying) dies() (dead, carriesOut bool) {
	d.left--
	return d.left < 0, d.left == -1 && d.unsaid
}

func (d *dying) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Acquire(ctx, r)
	}
	if carriesOut {
		_, _ = d.Store.Acquire(ctx, r)
	}
	return lease.Lease{}, errDead
}

func (d *dying) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Renew(ctx, r)
	}
	if carriesOut {
		_, _ = d.Store.Renew(ctx, r)
	}
	return lease.Lease{}, errDead
}

func (d *dying) Release(ctx context.Context, c lease.Claim) error {
	dead, carriesOut := d.dies()
	if !dead {
		return d.Store.Release(ctx, c)
	}
	if carriesOut {
		_ = d.Store.Release(ctx, c)
	}
	return errDead
}

func (d *dying) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	if dead, _ := d.dies(); dead {
		return func(yield func(lease.Record, error) bool) { yield(lease.Record{}, errDead) }
	}
	return d.Store.List(ctx, r)
}

// A request dies after each of its operations, and is sent again through another server: it gets
// one share, and a writer comes after it.
func TestARequestThatDiesAnywhereIsSentAgainAndHasOneShare(t *testing.T) {
	t.Parallel()
	const operations = 6
	for _, exclusive := range []bool{false, true} {
		for left := range operations {
			for _, unsaid := range []bool{false, true} {
				t.Run(fmt.Sprintf("exclusive %v, %d operations, unsaid %v", exclusive, left, unsaid), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { dieAndGoOn(t, exclusive, left, unsaid) })
				})
			}
		}
	}
}

func dieAndGoOn(t *testing.T, exclusive bool, left int, unsaid bool) {
	t.Helper()
	store := leasetest.NewStore()
	r := ask("a", 2)
	r.IdempotencyKey, r.Exclusive = "k", exclusive
	if exclusive {
		r.Slots = 0
	}
	told, err := locker(t, &dying{Store: store, left: left, unsaid: unsaid}).Acquire(t.Context(), r, 0)
	if err != nil {
		require.ErrorIs(t, err, errDead)
	}
	began := time.Now()
	other := locker(t, store)
	share := acquire(t, other, r, time.Minute)
	assert.LessOrEqual(t, time.Since(began), shared.DefaultGateTTL+shared.DefaultPollInterval)
	if told.ID != "" {
		assert.Equal(t, told.Claim, share.Claim)
	}
	holders, err := other.Holders(t.Context(), "job")
	require.NoError(t, err)
	require.Len(t, holders, 1, "nothing is left of the first sending beside it")
	assert.Equal(t, share.Claim, holders[0].Claim)

	w := ask("writer", 0)
	w.Exclusive = true
	_, err = other.Acquire(t.Context(), w, 0)
	require.ErrorIs(t, err, lease.ErrHeld)
	require.NoError(t, store.Release(t.Context(), share.Claim))
	acquire(t, other, w, 0)
}

// keyed is a request for the only slot that can be sent again.
func keyed() shared.Request {
	r := ask("a", 1)
	r.IdempotencyKey = "k"
	return r
}

// stands lets another request wait at the gate until the test's end, and returns when it does.
func stands(t *testing.T, store lease.Store) {
	t.Helper()
	go func() { _, _ = locker(t, store).Acquire(t.Context(), ask("b", 1), -1) }()
	synctest.Wait()
	gate, err := store.Get(t.Context(), shared.SlotName("job", 0))
	require.NoError(t, err)
	require.Equal(t, "b", gate.Holder)
}

func TestARequestIsSentAgainWhileAnotherStandsAtTheGate(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Minute, -1} {
		synctest.Test(t, func(t *testing.T) {
			store := leasetest.NewStore()
			first := acquire(t, locker(t, store), keyed(), 0)
			stands(t, store)
			began := time.Now()
			again := acquire(t, locker(t, store), keyed(), wait)
			assert.Equal(t, first.Claim, again.Claim)
			assert.Equal(t, first.Fence, again.Fence)
			assert.Less(t, time.Since(began), time.Second)
		})
	}
}

// The slot of a sending that lost the gate is not the request's: somebody else may have the whole lock.
func TestASlotThatWasTakenWithoutTheGateIsToldToNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		w := ask("writer", 0)
		w.Exclusive = true
		late := hooked{Store: store, beforeAcquire: func(r lease.AcquireRequest) {
			if slotOf(r.Name) == 0 {
				return
			}
			bubble.Sleep(shared.DefaultGateTTL) // and somebody else has the lock
			_, _ = locker(t, store).Acquire(t.Context(), w, 0)
		}}
		ctx := t.Context()
		_, err := locker(t, late).Acquire(ctx, keyed(), 0)
		require.Error(t, err)
		slot, err := store.Get(ctx, shared.SlotName("job", 1))
		require.NoError(t, err)
		require.Equal(t, "a", slot.Holder, "it has the slot, beside the writer")
		gate, err := store.Get(ctx, shared.SlotName("job", 0))
		require.NoError(t, err)
		require.Equal(t, "writer", gate.Holder)
		for _, wait := range []time.Duration{0, 10 * time.Second} {
			_, err = locker(t, store).Acquire(ctx, keyed(), wait)
			require.ErrorIs(t, err, lease.ErrHeld)
		}
	})
}

// A lease that ended between the look and the request is not got again beside the gate.
func TestANewLeaseOfASlotIsNotGotWithoutTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		first := acquire(t, locker(t, store), keyed(), 0)
		w := ask("writer", 0) // it stands at the gate, to be alone
		w.Exclusive = true
		go func() { _, _ = locker(t, store).Acquire(t.Context(), w, -1) }()
		synctest.Wait()
		ends := hooked{Store: store, beforeAcquire: func(r lease.AcquireRequest) {
			if slotOf(r.Name) > 0 {
				assert.NoError(t, store.Release(t.Context(), first.Claim))
			}
		}}
		_, err := locker(t, ends).Acquire(t.Context(), keyed(), 0)
		require.ErrorIs(t, err, lease.ErrHeld)
	})
}
