//go:build integration

package election

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

func TestTermsRiseWhenAStandbyThatMissedSomeBecomesThePrimary(t *testing.T) {
	t.Parallel()
	primary := pgtest.StartServer(t, pgserver.Options{})
	standby, err := primary.Standby(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, standby.Close()) })
	backend := postgres.Config{DSN: fmt.Sprintf("postgres://postgres@%s:%d,%s:%d/postgres?sslmode=disable",
		primary.Host(), primary.Port(), standby.Host(), standby.Port())}
	terms := make(chan leader.Term, 100)
	for _, identity := range []string{"a", "b"} {
		join(t, identity, backend, leader.Config{}, func(ctx context.Context) { terms <- leader.TermOfContext(ctx) })
	}
	connection := pgtest.Connect(t, primary.DSN(""))
	known := func() (n uint64) {
		_ = pgtest.Connect(t, standby.DSN("")).QueryRow(t.Context(), "SELECT n FROM pglatch_election").Scan(&n) // 0 at first
		return n
	}
	until(t, "the standby knows of a term", func() bool { return known() > 0 })

	var sender int
	require.NoError(t, connection.QueryRow(t.Context(), "SELECT pid FROM pg_stat_replication").Scan(&sender))
	require.NoError(t, syscall.Kill(sender, syscall.SIGSTOP))
	last := leader.Term{Era: 1, N: known()}
	for range 3 {
		terminate(t, primary.DSN(""))
		for next := last; next == last; {
			if term := receive(t, terms, "a term"); term.Compare(last) > 0 {
				last = term
			}
		}
	}
	require.NoError(t, primary.Kill())
	require.Less(t, known(), last.N, "the control: numbers that go on from the standby's would repeat")

	var promoted bool
	require.NoError(t, pgtest.Connect(t, standby.DSN("")).QueryRow(t.Context(), "SELECT pg_promote()").Scan(&promoted))
	require.True(t, promoted)
	after := receive(t, terms, "a term on the new primary")
	t.Logf("term %v after %v", after, last)
	assert.Positive(t, after.Compare(last), "%v after %v", after, last)
	assert.Equal(t, last.Era+1, after.Era)
}
