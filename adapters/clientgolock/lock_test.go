package clientgolock_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pglatch/pglatch/adapters/clientgolock"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/postgres"
)

var resource = schema.GroupResource{Group: "lease.pglatch", Resource: "leases"}

func newLock(t *testing.T, store leased.Store, identity string) *clientgolock.Lock {
	t.Helper()
	lock, err := clientgolock.New(store, clientgolock.Config{Name: "operator", Identity: identity})
	require.NoError(t, err)
	return lock
}

func recordOf(who string, transitions int) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: who, LeaseDurationSeconds: 15, LeaderTransitions: transitions}
}

func TestWhatNobodyHasCreatedIsNotFound(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	one, two := newLock(t, store, "one"), newLock(t, store, "two")
	_, _, err := one.Get(t.Context())
	require.True(t, apierrors.IsNotFound(err), err)
	require.Error(t, one.Update(t.Context(), recordOf("one", 0)), "nothing was seen yet")
	require.NoError(t, one.Create(t.Context(), recordOf("one", 0)))
	require.True(t, apierrors.IsAlreadyExists(two.Create(t.Context(), recordOf("two", 0))))
}

func TestAnUpdateThatIsStaleIsAConflictAndChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), leasetest.NewStore()
	one, two, three := newLock(t, store, "one"), newLock(t, store, "two"), newLock(t, store, "three")
	require.NoError(t, one.Create(ctx, recordOf("one", 0)))

	_, _, err := two.Get(ctx)
	require.NoError(t, err)
	assert.True(t, apierrors.IsConflict(two.Update(ctx, recordOf("two", 1))), "the lease is held, whatever the elector's clock says")

	require.NoError(t, one.Update(ctx, recordOf("", 0)))
	for _, l := range []*clientgolock.Lock{two, three} {
		r, _, err := l.Get(ctx)
		require.NoError(t, err)
		assert.Empty(t, r.HolderIdentity)
		assert.Equal(t, 1, r.LeaseDurationSeconds)
	}
	require.NoError(t, three.Update(ctx, recordOf("three", 1)))
	require.NoError(t, three.Update(ctx, recordOf("", 1)))
	assert.True(t, apierrors.IsConflict(two.Update(ctx, recordOf("two", 1))), "somebody had it since")
	r, _, err := two.Get(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, r.LeaderTransitions)
	require.NoError(t, two.Update(ctx, recordOf("two", 2)))

	found, err := store.Get(ctx, "operator")
	require.NoError(t, err)
	require.NoError(t, store.Release(ctx, found.Claim))
	_, err = store.Acquire(ctx, lease.AcquireRequest{Name: "operator", Holder: "three", TTL: time.Minute})
	require.NoError(t, err)
	err = two.Update(ctx, recordOf("", 2))
	require.ErrorAs(t, err, new(*lease.StaleError))
	assert.False(t, apierrors.IsConflict(err), "client-go would repeat it at once, for RenewDeadline")
	found, err = store.Get(ctx, "operator")
	require.NoError(t, err)
	assert.Equal(t, lease.Held, found.State, "what the successor has is untouched")
}

func TestTheBytesOfARecordChangeWithEachRenewalAndWithNothingElse(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), leasetest.NewStore()
	one, two := newLock(t, store, "one"), newLock(t, store, "two")
	require.NoError(t, one.Create(ctx, recordOf("one", 7)))
	r, first, err := two.Get(ctx)
	require.NoError(t, err)
	assert.Equal(t, "one", r.HolderIdentity)
	assert.Equal(t, 7, r.LeaderTransitions)
	assert.Equal(t, 15, r.LeaseDurationSeconds)
	_, again, err := two.Get(ctx)
	require.NoError(t, err)
	assert.Equal(t, string(first), string(again))
	require.NoError(t, one.Update(ctx, recordOf("one", 7)))
	_, renewed, err := two.Get(ctx)
	require.NoError(t, err)
	assert.NotEqual(t, string(first), string(renewed))
}

func TestALeaseThatAnotherProgramHasIsHeld(t *testing.T) {
	t.Parallel()
	ctx, store := t.Context(), leasetest.NewStore()
	_, err := store.Acquire(ctx, lease.AcquireRequest{Name: "operator", Holder: "pglatch", TTL: time.Minute})
	require.NoError(t, err)
	one := newLock(t, store, "one")
	r, _, err := one.Get(ctx)
	require.NoError(t, err)
	assert.Equal(t, "pglatch", r.HolderIdentity)
	assert.Equal(t, 60, r.LeaseDurationSeconds)
	assert.True(t, apierrors.IsConflict(one.Update(ctx, recordOf("one", 1))))
}

func TestALeaseOfAnotherProcessWithTheSameIdentityIsNotTheCandidates(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	one, again := newLock(t, store, "one"), newLock(t, store, "one")
	require.NoError(t, one.Create(t.Context(), recordOf("one", 0)))
	r, _, err := one.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "one", r.HolderIdentity)
	r, _, err = again.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "one (token 1)", r.HolderIdentity, "else its elector's IsLeader were true")
	assert.True(t, apierrors.IsConflict(again.Update(t.Context(), recordOf("one", 0))))
}

func TestABusyStoreDoesNotMakeTheCandidateForgetAnEarlierRequest(t *testing.T) {
	t.Parallel()
	ctx, deaf := t.Context(), &line{Store: leasetest.NewStore()}
	one := newLock(t, deaf, "one")
	deaf.deaf.Store(true)
	require.ErrorIs(t, one.Create(ctx, recordOf("one", 0)), errUnreachable)
	deaf.deaf.Store(false)
	deaf.busy.Store(true)
	require.ErrorIs(t, one.Create(ctx, recordOf("one", 0)), lease.ErrBusy)
	deaf.busy.Store(false)
	require.NoError(t, one.Create(ctx, recordOf("one", 0)), "the lease is the candidate's")
	assert.Equal(t, uint64(1), one.Token())
}

func TestNewRefusesWhatTheStoreWould(t *testing.T) {
	t.Parallel()
	for _, c := range []clientgolock.Config{{}, {Name: "a\x00"}, {Name: "a", Identity: "\n"}} {
		_, err := clientgolock.New(leasetest.NewStore(), c)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
	_, err := clientgolock.New(nil, clientgolock.Config{Name: "a"})
	require.ErrorIs(t, err, lease.ErrInvalid)
	lock, err := clientgolock.New(leasetest.NewStore(), clientgolock.Config{Name: "a"})
	require.NoError(t, err)
	assert.NotEmpty(t, lock.Identity())
	assert.Equal(t, "a", lock.Describe())
}

// A process is a manager of controller-runtime, and what it leads.
type process struct {
	line  *line
	lock  *clientgolock.Lock
	leads chan context.Context
	stop  context.CancelFunc
	ended chan error
}

// startManager starts a manager that has no Kubernetes at all, on a store in PostgreSQL.
func startManager(t *testing.T, store lease.Store) *process {
	t.Helper()
	p := &process{line: &line{Store: store}, leads: make(chan context.Context, 1), ended: make(chan error, 1)}
	lock, err := clientgolock.New(p.line, clientgolock.Config{Name: "operator"})
	require.NoError(t, err)
	p.lock = lock
	lasts, deadline, retry := 8*time.Second, 6*time.Second, 200*time.Millisecond
	m, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		LeaderElection: true, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lasts, RenewDeadline: &deadline, RetryPeriod: &retry,
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	require.NoError(t, err)
	require.NoError(t, m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		p.leads <- ctx
		<-ctx.Done()
		return nil
	})))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	p.stop = cancel
	go func() { p.ended <- m.Start(ctx) }()
	return p
}

func TestManagersOfControllerRuntimeElectWithoutKubernetes(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, pgtest.DSN(t))
	store, err := postgres.New(postgres.Config{Pool: pool})
	require.NoError(t, err)
	require.NoError(t, store.Migrate(t.Context()))

	first := startManager(t, store)
	work := <-first.leads
	token := first.lock.Token()
	second := startManager(t, store)

	first.line.cut.Store(true)
	require.ErrorContains(t, <-first.ended, "leader election lost")
	<-work.Done() // the manager does not wait for it when leadership is lost
	work = <-second.leads
	assert.Greater(t, second.lock.Token(), token)

	third := startManager(t, store)
	second.stop()
	require.NoError(t, <-second.ended)
	<-work.Done()
	<-third.leads
	third.stop()
	require.NoError(t, <-third.ended)
	record, err := store.Get(t.Context(), "operator")
	require.NoError(t, err)
	assert.Equal(t, lease.Free, record.State, "it was released")
}
