package leased_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/lease/sqlite"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
	"github.com/pglatch/pglatch/once/oncetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func inMemory(*testing.T) leased.Leases { return leasetest.NewStore() }

func inAFile(t *testing.T) leased.Leases {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "locks.db"), sqlite.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func inPostgres(t *testing.T) leased.Leases {
	t.Helper()
	s, err := postgres.New(postgres.Config{DSN: pgtest.DSN(t)})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

func overHTTP(t *testing.T) leased.Leases {
	t.Helper()
	_, h := servetest.Serve(t, leaseserver.Config{Store: leasetest.NewStore()})
	return servetest.Client(t, h, leasehttp.ClientConfig{})
}

func TestLeasesConformToTheContract(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) leased.Leases{
		"memory": inMemory, "sqlite": inAFile, "postgres": inPostgres, "http": overHTTP,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oncetest.Run(t, oncetest.Harness{New: func(t *testing.T) once.Store { t.Helper(); return leased.New(open(t)) }})
		})
	}
}
