package shared_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
	"github.com/pglatch/pglatch/lease/sqlite"
)

func TestLocksAreSharedInMemory(t *testing.T) {
	t.Parallel()
	sharetest.Run(t, sharetest.Harness{TTL: 200 * time.Millisecond, New: func(*testing.T) lease.Store { return leasetest.NewStore() }})
}

func TestLocksAreSharedInSQLite(t *testing.T) {
	t.Parallel()
	sharetest.Run(t, sharetest.Harness{TTL: 300 * time.Millisecond, New: func(t *testing.T) lease.Store {
		t.Helper()
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "locks.db"), sqlite.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		return s
	}})
}

// A broken store grants leases of some names to everybody, as if they were no names of one
// lock: what rests on them must be seen to fail.
type broken struct {
	lease.Store
	everybody func(slot int) bool
}

func (b broken) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	if lock, slot, ok := shared.ParseName(r.Name); ok && b.everybody(slot) {
		r.Name = lock + "/" + rand.Text() + shared.SlotName("", slot)
	}
	l, err := b.Store.Acquire(ctx, r)
	return l, err
}

func (b broken) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return b.Store.List(ctx, r)
}

func locker(t *testing.T, s lease.Store) *shared.Locker {
	t.Helper()
	l, err := shared.New(shared.Config{Store: s, PollInterval: 10 * time.Millisecond})
	require.NoError(t, err)
	return l
}

func ask(holder string, slots int) shared.Request {
	return shared.Request{AcquireRequest: lease.AcquireRequest{Name: "job", Holder: holder, TTL: time.Minute}, Slots: slots}
}

func TestWithoutTheGateAReaderIsBesideAWriter(t *testing.T) { // the control of the suite
	t.Parallel()
	l := locker(t, broken{leasetest.NewStore(), func(slot int) bool { return slot == 0 }})
	w := ask("writer", 0)
	w.Exclusive = true
	writer := acquire(t, l, w, 0)
	reader := acquire(t, l, ask("reader", 0), 0)
	assert.ErrorContains(t, judge.Holds([]judge.Hold{sharetest.Hold(writer, true), sharetest.Hold(reader, false)}, shared.MaxSlots), "is beside")
}

func TestWithoutSlotsThereAreMoreThanN(t *testing.T) { // the control of the suite
	t.Parallel()
	l := locker(t, broken{leasetest.NewStore(), func(slot int) bool { return slot > 0 }})
	var holds []judge.Hold
	for range 3 {
		s := acquire(t, l, ask("a", 2), 0)
		holds = append(holds, sharetest.Hold(s, false))
	}
	require.NoError(t, judge.Holds(holds, 3))
	assert.ErrorContains(t, judge.Holds(holds, 2), "is beside")
}

func TestNamesOfSlotsAreReadAsTheyAreMade(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"job", "a::b", "a::slot::12", "ä/b"} {
		for _, slot := range []int{0, 1, 10, shared.MaxSlots} {
			name := shared.SlotName(lock, slot)
			gotLock, gotSlot, ok := shared.ParseName(name)
			assert.True(t, ok, name)
			assert.Equal(t, lock, gotLock)
			assert.Equal(t, slot, gotSlot)
			assert.True(t, shared.IsReserved(name))
			assert.True(t, strings.HasPrefix(name, shared.Prefix(lock)))
		}
	}
	for _, name := range []string{"job", "slot::0001", "::slot::0001", "job::slot::001", "job::slot::1001", "job::slot::000x", "job:slot::0001", ""} {
		_, _, ok := shared.ParseName(name)
		assert.False(t, ok, name)
	}
	assert.True(t, shared.IsReserved("job::slot"), "a server's waiters are in a line of that name")
	assert.False(t, shared.IsReserved("job"))
}

func TestRequestsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	l := locker(t, leasetest.NewStore())
	for field, change := range map[string]func(*shared.Request){
		"Name":    func(r *shared.Request) { r.Name = shared.SlotName("job", 1) },
		"Slots":   func(r *shared.Request) { r.Slots = shared.MaxSlots + 1 },
		"TTL":     func(r *shared.Request) { r.TTL = 0 },
		"MinHold": func(r *shared.Request) { r.Exclusive, r.MinHold = true, time.Second },
	} {
		r := ask("a", 0)
		change(&r)
		_, err := l.Acquire(t.Context(), r, 0)
		var invalid *lease.InvalidError
		require.ErrorAs(t, err, &invalid)
		assert.Equal(t, field, invalid.Field)
	}
	both := ask("a", 2)
	both.Exclusive = true
	_, err := l.Acquire(t.Context(), both, 0)
	require.ErrorIs(t, err, lease.ErrInvalid)
	tooLong := ask("a", 2)
	tooLong.Name = strings.Repeat("x", lease.MaxName-11)
	_, err = l.Acquire(t.Context(), tooLong, 0)
	require.ErrorIs(t, err, lease.ErrInvalid)
	for _, c := range []shared.Config{{}, {Store: leasetest.NewStore(), GateTTL: 1}, {Store: leasetest.NewStore(), PollInterval: -1}} {
		_, err := shared.New(c)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
}

func TestMain(m *testing.M) { leak.Main(m) }

func TestNamesOfOtherLocksHideNobodyFromAWriter(t *testing.T) {
	t.Parallel()
	for _, between := range []string{
		"job::slot::-%d",           // before all slots of the lock
		"job::slot::000::slot::%d", // after the ninth
		"job::slot::0001/%d",       // after the first
	} {
		store := leasetest.NewStore()
		l := locker(t, store)
		for range 12 {
			acquire(t, l, ask("reader", 0), 0)
		}
		holders, err := l.Holders(t.Context(), "job")
		require.NoError(t, err)
		require.Len(t, holders, 12)
		for i := range 11 {
			require.NoError(t, store.Release(t.Context(), holders[i].Claim))
		}
		for i := range 3 * shared.MaxSlots {
			_, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: fmt.Sprintf(between, i), Holder: "other", TTL: lease.MaxTTL})
			require.NoError(t, err)
		}
		w := ask("writer", 0)
		w.Exclusive = true
		_, err = l.Acquire(t.Context(), w, 0)
		require.ErrorIs(t, err, lease.ErrHeld, between)
		holders, err = l.Holders(t.Context(), "job")
		require.NoError(t, err)
		assert.Len(t, holders, 1)
	}
}

func TestASlotCostsAsMuchHoweverManyTheHolderHas(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	asked := 0
	l := locker(t, hooked{Store: store, beforeAcquire: func(lease.AcquireRequest) { asked++ }})
	const slots = 30
	request := func(i int) (r lease.AcquireRequest) {
		r = ask("pool", 0).AcquireRequest
		r.IdempotencyKey = fmt.Sprint("k", i)
		r.Metadata = map[string]string{"a": "b"}
		return r
	}
	for i := range slots {
		asked = 0
		r := ask("pool", slots)
		r.AcquireRequest = request(i)
		s := acquire(t, l, r, 0)
		assert.Equal(t, i+1, s.Slot)
		assert.Equal(t, 2, asked, "of the gate and of the slot")
		assert.Equal(t, r.Metadata, s.Metadata, "what the request said, and nothing else")
		if i%2 == 0 { // who changes metadata takes away what tells whose slot it is
			continue
		}
		again := acquire(t, l, r, 0)
		assert.Equal(t, s.Claim, again.Claim)
		assert.Equal(t, s.Metadata, again.Metadata)
	}
	r := ask("pool", slots)
	r.AcquireRequest = request(slots - 1)
	first := acquire(t, l, r, 0)
	_, err := store.Renew(t.Context(), lease.RenewRequest{Claim: first.Claim, TTL: time.Hour, Metadata: map[string]string{}})
	require.NoError(t, err)
	again := acquire(t, l, r, 0)
	assert.Equal(t, first.Claim, again.Claim)
}

func acquire(tb testing.TB, l *shared.Locker, r shared.Request, wait time.Duration) shared.Share {
	tb.Helper()
	s, err := l.Acquire(tb.Context(), r, wait)
	require.NoError(tb, err)
	return s
}
