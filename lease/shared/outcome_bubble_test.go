package shared_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
				time.Sleep(shared.DefaultGateTTL)
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
	s, err := locker(t, leasetest.NewStore()).Acquire(t.Context(), w, 0)
	require.NoError(t, err)
	assert.Equal(t, w.Metadata["note"], s.Metadata["note"])
}

func TestALockDelayKeepsNobodyOutOfALockThatItsRequestNeverGot(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := leasetest.NewStore()
			l := locker(t, store)
			reader, err := l.Acquire(t.Context(), ask("reader", 0), 0)
			require.NoError(t, err)
			w := ask("writer", 0)
			w.Exclusive, w.IdempotencyKey, w.LockDelay = true, "k", time.Hour
			if dies {
				w.IdempotencyKey = ""
				_, err = locker(t, handing{&dying{Store: store, left: 4}}).Acquire(t.Context(), w, time.Minute)
				require.ErrorIs(t, err, errDead)
			} else {
				_, err = l.Acquire(t.Context(), w, time.Second)
				require.ErrorIs(t, err, lease.ErrHeld)
			}
			require.NoError(t, store.Release(t.Context(), reader.Claim))
			_, err = l.Acquire(t.Context(), ask("reader", 0), shared.DefaultGateTTL+time.Second)
			require.NoError(t, err)
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
				share, err := l.Acquire(t.Context(), w, time.Minute)
				require.NoError(t, err)
				assert.LessOrEqual(t, time.Since(began), shared.DefaultGateTTL+shared.DefaultPollInterval)
				if told.ID != "" {
					assert.Equal(t, told.Claim, share.Claim)
				}
				assert.Equal(t, "b", share.Metadata["a"])
				again, err := l.Acquire(t.Context(), w, 0)
				require.NoError(t, err)
				assert.Equal(t, share.Claim, again.Claim)
				time.Sleep(w.TTL)
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
		reader, err := locker(t, store).Acquire(t.Context(), ask("reader", 0), 0)
		require.NoError(t, err)
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
		_, err = store.Renew(t.Context(), lease.RenewRequest{Claim: first.Claim, TTL: w.TTL})
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
		_, err := l.Acquire(t.Context(), r, 0)
		require.NoError(t, err)
		w := ask("writer", 0)
		w.Exclusive, w.MaxLifetime = true, 10*time.Second
		s, err := l.Acquire(t.Context(), w, time.Minute)
		require.NoError(t, err)
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
		_, err = locker(t, store).Acquire(t.Context(), ask("b", 1), 0)
		require.NoError(t, err)
	})
}

func TestWhoDoesNotWaitIsRefusedAtOnceWhateverMetadataTheWriterHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.NewStore()
		l := locker(t, store)
		w := ask("writer", 0)
		w.Exclusive = true
		s, err := l.Acquire(t.Context(), w, 0)
		require.NoError(t, err)
		_, err = store.Renew(t.Context(), lease.RenewRequest{Claim: s.Claim, TTL: w.TTL, Metadata: map[string]string{"done": "half"}})
		require.NoError(t, err)
		began := time.Now()
		_, err = l.Acquire(t.Context(), ask("reader", 0), 0)
		require.ErrorIs(t, err, lease.ErrHeld)
		assert.Zero(t, time.Since(began))
	})
}
