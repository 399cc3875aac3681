package doctorcmd_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

type diagnosis struct {
	OK     bool
	Checks []struct{ Check, Status, Detail string }
}

// examine returns doctor's statuses and details by check.
func examine(t *testing.T, dsn string, wantCode int, args ...string) (status, detail map[string]string) {
	t.Helper()
	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), append([]string{"doctor", "--json"}, args...)...)
	require.Equal(t, wantCode, code, "%s\n%s", stdout, stderr)
	d := clitest.Decode[diagnosis](t, stdout)
	assert.Equal(t, wantCode == 0, d.OK)
	status, detail = map[string]string{}, map[string]string{}
	for _, c := range d.Checks {
		status[c.Check], detail[c.Check] = c.Status, c.Detail
	}
	return status, detail
}

func TestDoctorFindsAHealthyServerHealthy(t *testing.T) {
	t.Parallel()
	// Of its own, because other tests fill the connections and the lock table of a shared one.
	dsn := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_connections": "300"}}).DSN("")
	clitest.Execute(t, clitest.Connect(t, dsn, ""), "SELECT pg_advisory_lock(1, 1)")
	status, detail := examine(t, dsn, 0, "--session-ttl", "10s")
	for check, s := range status {
		assert.Equal(t, "ok", s, check)
	}
	assert.Len(t, status, 14)
	assert.Contains(t, detail["lock table"], "room for "+strconv.Itoa(64*300)+" = max_locks_per_transaction 64 × (max_connections 300 + max_prepared_transactions 0)")
	assert.Contains(t, detail["fail-over"], "10.9s in all")
	for _, set := range []string{"tcp_keepalives_idle 3s (else ", "tcp_keepalives_interval 3s (else ", "tcp_keepalives_count 3 (else ", "tcp_user_timeout 10000ms (else ", "client_connection_check_interval 1s (else "} {
		assert.Contains(t, detail["keepalives"], set, "what lock sessions with this lease set")
	}
	assert.Contains(t, detail["leadership"], "10.9s in all")
	assert.Contains(t, detail["deadlock_timeout"], "steps of 900ms")
	assert.Equal(t, "no pooler between", detail["lock sessions"])

	stdout, stderr, code := clitest.Run(t, clitest.At(dsn), "doctor")
	assert.Zero(t, code)
	assert.Empty(t, stderr)
	assert.Equal(t, 14, strings.Count(stdout, "\n"))
	assert.True(t, strings.HasPrefix(stdout, "ok    connection        database "), stdout)
	stdout, _, _ = clitest.Run(t, clitest.At(dsn), "doctor", "-o", "jsonl")
	assert.Len(t, clitest.DecodeLines[struct{ Check string }](t, stdout), 14)
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{
		"max_connections": "20", "max_locks_per_transaction": "10", "deadlock_timeout": "100ms", "superuser_reserved_connections": "3",
	}})
	admin := clitest.Connect(t, server.DSN(""), "admin")
	clitest.Execute(t, admin, "CREATE ROLE app LOGIN")
	clitest.Execute(t, admin, "DROP EXTENSION plpgsql")
	clitest.Execute(t, admin, "SELECT pg_advisory_lock(i) FROM generate_series(1, 120) i")
	u, err := url.Parse(server.DSN(""))
	require.NoError(t, err)
	u.User = url.User("app")
	status, detail := examine(t, u.String(), program.ExitInternal)
	assert.Equal(t, "fail", status["plpgsql"])
	assert.Equal(t, "fail", status["lock sessions"])
	assert.Contains(t, detail["lock sessions"], "CREATE EXTENSION plpgsql")
	assert.Equal(t, "warn", status["rights"])
	assert.Equal(t, "warn", status["lock table"])
	assert.Regexp(t, `^120 advisory of 1[2-4]\d locks now, room for 200`, detail["lock table"], "an autovacuum may have some, too")
	assert.Equal(t, "warn", status["deadlock_timeout"])
	assert.Contains(t, detail["fail-over"], "one wait step (90ms) later: 15.09s in all")

	stdout, stderr, code := clitest.Run(t, clitest.At(u.String()), "doctor", "--color", "always")
	assert.Equal(t, program.ExitInternal, code)
	assert.Equal(t, "pglatch: 2 of 14 checks failed\n", stderr)
	assert.Contains(t, stdout, "\x1b[31mfail\x1b[0m  plpgsql")

	clitest.Execute(t, admin, "CREATE EXTENSION plpgsql")
	clitest.Execute(t, admin, "GRANT pg_monitor TO app")
	status, _ = examine(t, u.String(), 0) // the control: warnings are no failure
	assert.Equal(t, "ok", status["rights"])
	assert.Equal(t, "warn", status["lock table"])
}

func TestDoctorFindsAStandby(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	defer standby.Close()
	status, _ := examine(t, standby.DSN(""), program.ExitInternal)
	assert.Equal(t, "fail", status["primary"])
	assert.Equal(t, "fail", status["lock sessions"])
	status, _ = examine(t, primary.DSN(""), 0)
	assert.Equal(t, "ok", status["primary"])
}
