package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/soak"
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
