package clientgolock_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pglatch/pglatch/adapters/clientgolock"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

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
