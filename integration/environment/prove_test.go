//go:build integration

package environment

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
)

// A proven is what doctor --prove prints of a server.
type proven struct {
	Between string
	Proofs  []struct{ Proof, Status, Why string }
	Parts   []struct{ Part, Use, Why string }
}

// prove runs doctor --prove.
func prove(t *testing.T, dsn string, code int) (p proven) {
	t.Helper()
	for again := 0; ; again++ {
		stdout, stderr, ended := clitest.Run(t, clitest.At(dsn), "doctor", "--prove", "-o", "json")
		if again < 3 && strings.Contains(stdout, `"status": "unknown"`) {
			continue // on a busy machine
		}
		p = proven{}
		require.NoError(t, json.Unmarshal([]byte(stdout), &p), stderr)
		require.Equal(t, code, ended, "%s%s", stdout, stderr)
		return p
	}
}

// uses are the verdicts, in their order: mutex, LockTx, elections, leases, once, shards.
func (p proven) uses() (uses []string) {
	for _, v := range p.Parts {
		uses = append(uses, v.Use)
	}
	return uses
}

// not returns the proofs that a server did not give, with their statuses.
func (p proven) not(status string) map[string]string {
	not := map[string]string{}
	for _, r := range p.Proofs {
		if r.Status != status {
			not[r.Proof] = r.Status
		}
	}
	return not
}

const (
	mayBeUsed     = "may be used"
	mayBeUsedWith = "may be used with"
	mustNotBeUsed = "must not be used"
	notProven     = "not proven"
)

func TestWhatAPoolerDoesIsProven(t *testing.T) {
	t.Parallel()
	sessions := []string{
		"exclusion", "shared mode", "lock table view", "queue order", "unlock", "end of session", "terminated session", "session lease", "cancel", "cancel aim", "notify",
	}
	notIn := func(more ...string) map[string]string {
		not := map[string]string{}
		for _, name := range append(more, sessions...) {
			not[name] = "does not"
		}
		return not
	}
	for name, c := range map[string]struct {
		settings []string
		code     int
		between  string
		not      map[string]string
		uses     []string
	}{
		"session mode": {
			[]string{"pool_mode=session"},
			0, "a pooler in session mode",
			map[string]string{"pooler": "works with"},
			[]string{mayBeUsedWith, mayBeUsed, mayBeUsedWith, mayBeUsed, mayBeUsed, mayBeUsedWith},
		},
		"session mode without a reset": {
			[]string{"pool_mode=session", "server_reset_query="},
			70, "a pooler in session mode",
			map[string]string{"pooler": "works with", "end of session": "does not"},
			[]string{mustNotBeUsed, mayBeUsed, mustNotBeUsed, mayBeUsed, mayBeUsed, mustNotBeUsed},
		},
		"transaction mode": {
			[]string{"pool_mode=transaction"},
			70, "a pooler in transaction mode", notIn("pooler", "stable pid"),
			[]string{mustNotBeUsed, mayBeUsedWith, mustNotBeUsed, mayBeUsedWith, mayBeUsed, mustNotBeUsed},
		},
		"statement mode": {
			[]string{"pool_mode=statement"},
			70, "a pooler in statement mode", notIn("pooler", "stable pid", "transaction locks", "rollback", "savepoint"),
			[]string{mustNotBeUsed, mustNotBeUsed, mustNotBeUsed, mayBeUsedWith, mayBeUsedWith, mustNotBeUsed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t, pgserver.Options{})
			p := prove(t, service.PgBouncer(t, server, c.settings...), c.code)
			assert.Equal(t, c.between, p.Between)
			assert.Equal(t, c.not, p.not("works"))
			assert.Equal(t, c.uses, p.uses())
			requireLocks(t, pgtest.Connect(t, server.DSN("")), 0, 0)
		})
	}
}

func TestWhatAProxyDoesIsProven(t *testing.T) {
	t.Parallel()
	primary, other := pgtest.StartServer(t, pgserver.Options{}), pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })
	withStandby := []*pgserver.Server{primary, standby}
	for name, start := range map[string]func(t *testing.T) (dsn string){
		"HAProxy":   func(t *testing.T) string { t.Helper(); return service.HAProxy(t, primary) },
		"pgpool-II": func(t *testing.T) string { t.Helper(); return service.Pgpool(t, withStandby, "load_balance_mode=off") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			not := prove(t, start(t), 0).not("works")
			delete(not, "pooler") // pgpool-II keeps sessions, so that one may come again
			assert.Empty(t, not)
		})
	}
	// The controls: the same proxies, set up so that locks are never free, do not exclude, or are looked for elsewhere.
	t.Run("pgpool-II without a reset", func(t *testing.T) {
		t.Parallel()
		p := prove(t, service.Pgpool(t, withStandby, "load_balance_mode=off", "reset_query_list=''"), 70)
		assert.Equal(t, "does not", p.not("works")["end of session"])
		assert.Equal(t, []string{mustNotBeUsed, mayBeUsed, mustNotBeUsed, mayBeUsed, mayBeUsed, mustNotBeUsed}, p.uses())
	})
	for name, c := range map[string]struct {
		start func(t *testing.T) (dsn string)
		proof string
	}{
		"HAProxy over two servers": {func(t *testing.T) string { t.Helper(); return service.HAProxy(t, primary, other) }, "one server"},
		"pgpool-II balancing load": {func(t *testing.T) string {
			t.Helper()
			return service.Pgpool(t, withStandby, "backend_weight0=0", "backend_weight1=1")
		}, "lock table view"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := clitest.Run(t, clitest.At(c.start(t)), "doctor", "--prove", "-o", "json")
			var p proven
			require.NoError(t, json.Unmarshal([]byte(stdout), &p), stderr)
			assert.NotZero(t, code)
			assert.Contains(t, p.not("works"), c.proof)
			for _, part := range []int{0, 2, 5} { // mutex, elections, shards
				assert.Contains(t, []string{mustNotBeUsed, notProven}, p.uses()[part])
			}
		})
	}
}

// A logical replica is a primary with locks of its own. To its publisher, decoding makes no difference.
func TestALogicalReplicaIsRecognized(t *testing.T) {
	t.Parallel()
	publisher := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"wal_level": "logical"}})
	replica := pgtest.StartServer(t, pgserver.Options{})
	from, to := pgtest.Connect(t, publisher.DSN("")), pgtest.Connect(t, replica.DSN(""))
	for _, conn := range []*pgx.Conn{from, to} {
		execute(t, conn, "CREATE TABLE moved (n int PRIMARY KEY)")
	}
	require.Empty(t, prove(t, replica.DSN(""), 0).not("works"), "the control: without a subscription")
	execute(t, from, "CREATE PUBLICATION p FOR TABLE moved")
	execute(t, to, fmt.Sprintf("CREATE SUBSCRIPTION s CONNECTION '%s' PUBLICATION p", publisher.DSN("")))
	decoded := func(rows int) {
		await.Until(t, patience, func() bool {
			var n int
			require.NoError(t, to.QueryRow(t.Context(), "SELECT count(*) FROM moved").Scan(&n))
			return n == rows
		}, "the replica does not have %d rows", rows)
	}
	execute(t, from, "INSERT INTO moved SELECT generate_series(1, 1000)")
	decoded(1000)
	execute(t, from, "BEGIN")
	execute(t, from, "INSERT INTO moved SELECT generate_series(1001, 50000)") // is decoded, and waits for its commit
	assert.Empty(t, prove(t, publisher.DSN(""), 0).not("works"))
	p := prove(t, replica.DSN(""), 0)
	assert.Equal(t, map[string]string{"primary": "works with"}, p.not("works"))
	for _, v := range p.Parts {
		assert.Equal(t, mayBeUsedWith, v.Use)
		assert.Contains(t, v.Why, "logical replica")
	}
	execute(t, from, "COMMIT")
	decoded(50000)
}
