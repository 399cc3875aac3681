//go:build integration

package election

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease/postgres"
)

// standOnPostgresLease is the role with the setting server.
func standOnPostgresLease(ctx context.Context, c *electiontest.Child) error {
	store, err := postgres.New(postgres.Config{DSN: c.Settings["server"]})
	if err != nil {
		return err
	}
	defer store.Close()
	return standOnLease(ctx, c, store)
}

func newLeaseServer(t *testing.T) electiontest.Ground {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	store, err := postgres.New(postgres.Config{DSN: server.DSN("")})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	return leaseGround("lease/postgres", server.DSN(""), store,
		bounced("sessions ended", func(a *electiontest.Arena) {
			_, err := connect(a.T, server.DSN("")).Exec(a.T.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
			require.NoError(a.T, err)
		}),
		bounced("server restarted", func(a *electiontest.Arena) { restart(a, server) }),
		down("server down",
			func(a *electiontest.Arena) { require.NoError(a.T, server.Kill()) },
			func(a *electiontest.Arena) { require.NoError(a.T, server.Start(context.WithoutCancel(a.T.Context()))) }),
	)
}

func TestOneLeadsOnALeaseInPostgreSQLWhateverHappens(t *testing.T) {
	electiontest.Play(t, newLeaseServer(t))
}

func TestWithoutContextsLeadersOnALeaseInPostgreSQLOverlap(t *testing.T) {
	electiontest.Control(t, newLeaseServer(t), electiontest.Suspended(ttl, hand))
}
