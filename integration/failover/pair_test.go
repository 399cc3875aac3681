//go:build integration

package failover

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease/postgres"
)

const patience = 2 * await.Patience

func TestMain(m *testing.M) { clitest.MainOf(m, "../../cmd/pglatch") }

// A pair is a primary and a standby that streams from it.
type pair struct {
	t                *testing.T
	primary, standby *pgserver.Server
}

// newPair starts both, with the schema of leases. A commit waits for the standby as
// synchronousCommit says; "" = the standby is asynchronous.
func newPair(t *testing.T, synchronousCommit string) *pair {
	t.Helper()
	settings := map[string]string{"synchronous_commit": "on"}
	if synchronousCommit != "" {
		settings["synchronous_commit"] = synchronousCommit
	}
	p := &pair{t: t, primary: pgtest.StartServer(t, pgserver.Options{Settings: settings})}
	p.migrate()
	var err error
	p.standby, err = p.primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.standby.Close()) })
	if synchronousCommit != "" {
		p.exec(p.primary, "ALTER SYSTEM SET synchronous_standby_names = 'standby'")
		p.exec(p.primary, "SELECT pg_reload_conf()")
		p.eventually(p.primary, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')")
		p.eventually(p.primary, "SELECT current_setting('synchronous_standby_names') = 'standby'")
		// The checkpointer tells all sessions of the setting. It has read the setting before it begins the second checkpoint.
		for range 2 {
			p.exec(p.primary, "CHECKPOINT")
		}
	}
	return p
}

func (p *pair) migrate() {
	p.t.Helper()
	store, err := postgres.New(postgres.Config{DSN: p.primary.DSN("")})
	require.NoError(p.t, err)
	defer store.Close()
	require.NoError(p.t, store.Migrate(p.t.Context()))
}

// dsn names both servers, and wants the one that takes writes.
func (p *pair) dsn() string {
	return fmt.Sprintf("postgres://postgres@%s:%d,%s:%d/postgres?sslmode=disable&connect_timeout=5&target_session_attrs=read-write",
		p.primary.Host(), p.primary.Port(), p.standby.Host(), p.standby.Port())
}

// exec executes a statement on one of the servers.
func (p *pair) exec(server *pgserver.Server, sql string) {
	p.t.Helper()
	one[any](p, server, sql)
}

// one is the first column of the first row of a statement; zero if there is none.
func one[V any](p *pair, server *pgserver.Server, sql string) (v V) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), server.DSN(""))
	require.NoError(p.t, err)
	defer conn.Close(context.WithoutCancel(p.t.Context()))
	rows, err := conn.Query(p.t.Context(), sql)
	require.NoError(p.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[V])
	require.NoError(p.t, err, sql)
	if len(all) > 0 {
		v = all[0]
	}
	return v
}

// eventually waits until a statement yields true.
func (p *pair) eventually(server *pgserver.Server, sql string) {
	p.t.Helper()
	await.Until(p.t, patience, func() bool { return one[bool](p, server, sql) }, sql)
}

// stopStreaming suspends the sender of the primary: the standby gets nothing from here on.
func (p *pair) stopStreaming() {
	p.t.Helper()
	sender := one[int32](p, p.primary, "SELECT pid FROM pg_stat_replication WHERE application_name = 'standby'") // a base backup has senders too
	require.NoError(p.t, syscall.Kill(int(sender), syscall.SIGSTOP))
}

// caughtUp waits until the standby has all that is on the primary now.
func (p *pair) caughtUp() {
	p.t.Helper()
	now := one[string](p, p.primary, "SELECT pg_current_wal_lsn()::text")
	p.eventually(p.primary, "SELECT replay_lsn >= '"+now+"' FROM pg_stat_replication WHERE application_name = 'standby'")
}

// promote makes a primary of the standby, and returns when it takes writes.
func (p *pair) promote() {
	p.t.Helper()
	p.exec(p.standby, "SELECT pg_promote(wait => false)") // a wait in the server would hold a snapshot, with which what is replayed can conflict
	p.eventually(p.standby, "SELECT NOT pg_is_in_recovery()")
}

// failOver kills the primary as a power failure would, promotes the standby, and returns
// when each was done.
func (p *pair) failOver() (killed, promoted time.Time) {
	p.t.Helper()
	killed = time.Now()
	require.NoError(p.t, p.primary.Kill())
	p.promote()
	return killed, time.Now()
}

// eraOff makes tokens go on as if there were no eras.
func (p *pair) eraOff() {
	p.t.Helper()
	p.exec(p.primary, "CREATE OR REPLACE FUNCTION pglatch_lease.timeline() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'")
}
