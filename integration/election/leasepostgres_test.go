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

func newLeaseServer(t *testing.T) electiontest.Setup {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	store, err := postgres.New(postgres.Config{DSN: server.DSN("")})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	require.NoError(t, store.Migrate(t.Context()))
	return leaseSetup("lease/postgres", server.DSN(""), store,
		bounced("sessions ended", func(c *electiontest.Cluster) {
			_, err := pgtest.Connect(c.T, server.DSN("")).Exec(c.T.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
			require.NoError(c.T, err)
		}),
		bounced("server restarted", func(c *electiontest.Cluster) {
			require.NoError(c.T, server.RestartAnyhow(context.WithoutCancel(c.T.Context()), c.Random))
		}),
		down("server down",
			func(c *electiontest.Cluster) { require.NoError(c.T, server.Kill()) },
			func(c *electiontest.Cluster) {
				require.NoError(c.T, server.Start(context.WithoutCancel(c.T.Context())))
			}),
	)
}

func TestOneLeadsOnALeaseInPostgreSQLWhateverHappens(t *testing.T) {
	electiontest.Play(t, newLeaseServer(t))
}

func TestWithoutContextsLeadersOnALeaseInPostgreSQLOverlap(t *testing.T) {
	electiontest.Control(t, newLeaseServer(t), electiontest.Suspended(ttl, hand))
}
