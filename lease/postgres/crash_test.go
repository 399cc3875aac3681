package postgres_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// lazyServer acknowledges commits before they are written, unless it is told
// otherwise, and writes nothing before it must.
func lazyServer(t *testing.T) *pgserver.Server {
	t.Helper()
	return startServer(t, map[string]string{
		"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "autovacuum": "off", "bgwriter_delay": "10s",
	})
}

// grantsPerKill is how many leases are granted between two kills.
const grantsPerKill = 200

// crash kills the server under load, and starts it.
func crash(t *testing.T, server *pgserver.Server, l *leaseload.Load) {
	t.Helper()
	l.Await(grantsPerKill)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start(t.Context()))
}

func startLoad(t *testing.T, server *pgserver.Server, prefix string) *leaseload.Load {
	t.Helper()
	c := leaseload.Config{Prefix: prefix, TTL: 220 * time.Millisecond}
	for range 6 {
		c.Stores = append(c.Stores, open(t, server.DSN("")+"&connect_timeout=2", nil))
	}
	return leaseload.Start(t, c)
}

func TestNothingThatWasAcknowledgedIsLostInCrashesOfTheServer(t *testing.T) {
	t.Parallel()
	server := lazyServer(t)
	newStore(t, server.DSN(""))
	l := startLoad(t, server, "job")
	for range soak.Size(t, 3, 30) {
		crash(t, server, l)
	}
	l.Await(grantsPerKill)
	l.RequireLegal(t.Context())
}

// The control. What a crash forgets is what was written since the last flush: little, by chance.
func TestTheCrashTestCatchesAServerThatAcknowledgesEarly(t *testing.T) {
	t.Parallel()
	server := lazyServer(t)
	newStore(t, server.DSN(""))
	newJudge(t, server.DSN("")).exec("CREATE OR REPLACE FUNCTION pglatch_lease.durable(p_wait text) RETURNS void LANGUAGE sql AS ''")
	lost, repeats := 0, false
	for i := 0; i < 30 && (lost == 0 || !repeats); i++ {
		l := startLoad(t, server, fmt.Sprint("job-", i))
		crash(t, server, l)
		l.Await(grantsPerKill)
		l.Stop()
		lost += l.RenewKept(t.Context())
		if err := l.History.Check(soak.Size(t, time.Minute, 10*time.Minute)); err != nil {
			require.ErrorIs(t, err, leasetest.ErrIllegal)
			repeats = repeats || strings.Contains(err.Error(), "no order that a lease allows")
		}
	}
	assert.Positive(t, lost, "no lease was lost")
	assert.True(t, repeats, "no token was granted twice")
}

// While PostgreSQL is away, neither the active server nor one that forwards says that a lock is held, and none of its leases is forgotten.
func TestWithoutPostgreSQLNoServerSaysThatALockIsHeld(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	dsn := server.DSN("") + "&connect_timeout=2"
	newStore(t, dsn)
	peers := servetest.NewPeers(t, 20*time.Millisecond, open(t, dsn, nil), open(t, dsn, nil), open(t, dsn, nil))
	held := acquire(t, open(t, dsn, nil), "held", "a")
	claim := `"owner_id":"a","lease_id":"` + held.ID + `","fencing_token":1`
	ask := func(p servetest.Peer, target, body string) (status int, text string) {
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		r, err := http.NewRequestWithContext(t.Context(), method, p.HTTP.URL+target, strings.NewReader(body))
		require.NoError(t, err)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		answer, err := p.HTTP.Client().Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		data, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(data)
	}
	requests := []struct{ target, body string }{
		{"/v1/locks/held/acquire", `{"owner_id":"b","ttl_ms":60000}`},
		{"/v1/locks/held/acquire?wait=200ms", `{"owner_id":"b","ttl_ms":60000}`},
		{"/v1/locks/held/renew", `{` + claim + `,"ttl_ms":60000}`},
		{"/v1/locks/held/release", `{"owner_id":"b","lease_id":"x","fencing_token":1}`},
		{"/v1/locks/held/acquire", `{"owner_id":"b","ttl_ms":60000,"mode":"shared"}`},
		{"/v1/locks/held", ""},
		{"/v1/locks", ""},
	}
	batch := `{"operations":[{"acquire":{"lock":"held","owner_id":"b","ttl_ms":60000}},{"renew":{"lock":"other",` + claim + `,"ttl_ms":60000}}]}`
	for i, p := range peers {
		status, text := ask(p, "/v1/locks/held/acquire", `{"owner_id":"b","ttl_ms":60000}`)
		require.Equal(t, 409, status, "the control, server %d: %s", i, text)
	}
	require.NoError(t, server.Stop(t.Context(), pgserver.Immediate))
	for i, p := range peers {
		for _, r := range requests {
			status, text := ask(p, r.target, r.body)
			assert.Equal(t, 503, status, "server %d: %s: %s", i, r.target, text)
		}
		status, text := ask(p, "/v1/batch", batch)
		assert.Equal(t, 200, status, "server %d: %s", i, text)
		assert.Equal(t, 2, strings.Count(text, `{"status":503,`), "server %d: %s", i, text)
	}
	require.NoError(t, server.Start(t.Context()))
	for _, p := range peers {
		await.Until(t, patience, func() bool {
			_, err := p.Client.Renew(t.Context(), lease.RenewRequest{Claim: held.Claim, TTL: ttl})
			return err == nil
		})
		_, err := p.Client.Acquire(t.Context(), servetest.Ask("held", "b"))
		require.ErrorIs(t, err, lease.ErrHeld)
	}
}

func TestAStoreIsWellOnlyIfItsServerTakesWrites(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	unmade := open(t, dsn, nil)
	require.ErrorIs(t, unmade.Health(t.Context()), lease.ErrNotReady, "there is no schema")
	s := newStore(t, dsn)
	require.NoError(t, s.Health(t.Context()), "nothing is known of the name")
	acquire(t, s, "readyz", "h")
	require.NoError(t, s.Health(t.Context()), "nor does it matter")
	j := newJudge(t, dsn)
	j.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	readOnly := open(t, dsn, nil)
	_, err := readOnly.Get(t.Context(), "readyz")
	require.NoError(t, err, "reading says nothing of it")
	err = readOnly.Health(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	require.ErrorContains(t, err, "target_session_attrs=read-write")
	readOnly.Close()
	require.ErrorIs(t, readOnly.Health(t.Context()), lease.ErrClosed)
}
