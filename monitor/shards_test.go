package monitor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// own runs a node of shards until the test ends, and returns when it owns all of them.
func own(t *testing.T, dsn, identity string, answer introspect.Config) {
	t.Helper()
	backend, err := shardspg.New(shardspg.Config{DSN: dsn, Namespace: namespace.Must(7, "tenant"), CreateTable: true, Answer: answer})
	require.NoError(t, err)
	// The lease is long, so that the sessions are idle for longer than a verdict needs to be sure.
	node, err := shards.New(shards.Config{Name: "tenants", Backend: backend, Identity: identity, Shards: []string{"1", "2", "acme", "3"}, LeaseDuration: 2 * time.Minute})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	await.Until(t, patience, func() bool { return len(node.Owned()) == 4 })
}

// judged looks for seconds in which all processes answer, and returns the names of all verdicts that were raised meanwhile.
func judged(t *testing.T, m *monitor.Monitor) (names []string) {
	t.Helper()
	end := time.Now().Add(4 * time.Second)
	await.Until(t, patience, func() bool {
		all, err := m.Verdicts(t.Context())
		require.NoError(t, err)
		for _, v := range all {
			if v.Name == "holder-silent" { // true on a machine that is too busy for an answer
				names, end = nil, time.Now().Add(4*time.Second)
				return false
			}
			names = append(names, v.Name)
		}
		return time.Now().After(end)
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// The nodes of a fleet have one name for their Lockers and their shards, and lead for as long as they run.
func TestHealthyShardsAreNoVerdict(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		acquire(t, locker(t, dsn, "web-3"), agents.ID(1))
		own(t, dsn, "web-3", introspect.Config{})
		m := open(t, monitor.Config{DSN: dsn, Record: 100 * time.Millisecond})
		s := until(t, m, func(s monitor.Snapshot) bool {
			return len(s.Locks) == 7 && !slices.ContainsFunc(s.Locks, func(l monitor.Lock) bool { return l.HeldSince == nil || l.HeldSince.Source != monitor.SourceProcess })
		})
		assert.True(t, slices.ContainsFunc(s.Locks, func(l monitor.Lock) bool { return l.Key.Text == "tenant/acme" }), "the name of a hashed key")
		assert.Empty(t, judged(t, m))

		long := open(t, monitor.Config{DSN: dsn, LongHold: time.Millisecond, Record: 100 * time.Millisecond})
		assert.Equal(t, []string{"held-long"}, judged(t, long), "control: an ordinary lock is held for long")
		var heldLong monitor.Verdict
		await.Until(t, patience, func() bool { // a look that gets no answer in time has another verdict
			all, err := long.Verdicts(t.Context())
			require.NoError(t, err)
			i := slices.IndexFunc(all, func(v monitor.Verdict) bool { return v.Name == "held-long" })
			if i >= 0 {
				heldLong = all[i]
			}
			return i >= 0
		})
		assert.NotContains(t, strings.Join(heldLong.Evidence, "\n"), "tenant")
	})
}

func TestShardsThatDoNotAnswerInTheNameOfAProcessThatDoesAreTakenForALeak(t *testing.T) {
	t.Parallel()
	lockmode.Run(t, func(t *testing.T) {
		t.Helper()
		dsn := pgtest.DSN(t)
		acquire(t, locker(t, dsn, "web-3"), agents.ID(1))
		own(t, dsn, "web-3", introspect.Config{Off: true})
		names, err := namespace.NewSet(agents, namespace.Must(7, "tenant"))
		require.NoError(t, err)
		m := open(t, monitor.Config{DSN: dsn, Record: 100 * time.Millisecond, Namespaces: names})
		await.Until(t, patience, func() bool {
			all, err := m.Verdicts(t.Context())
			require.NoError(t, err)
			return slices.ContainsFunc(all, func(v monitor.Verdict) bool { return v.Name == "pooler" && strings.HasPrefix(v.Key, "tenant/") })
		})
	})
}
