package agents_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestScenario_QueryAdvisoryLocks(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := start(t, agents.Config{DSN: dsn, Replica: "a"}), start(t, agents.Config{DSN: dsn, Replica: "b"})
	x := a.call("session-start", agents.Hook{SessionID: "s"})
	release := a.hold(x.AgentID)
	hook := b.send("stop", agents.Hook{SessionID: "s"})
	waits := `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	eventually(t, func() bool { return ask[int](a, waits) == 1 }, "the hook waits")

	var list struct {
		Total int
		Locks []map[string]any
	}
	eventually(t, func() bool { // a waiter enters the server's queue in steps and may be missing between two
		y := a.do(http.MethodGet, "/api/advisory-locks", nil)
		require.Equal(t, http.StatusOK, y.status, y.body)
		list.Locks = nil
		y.decode(t, &list)
		if list.Total != 2 || len(list.Locks) != 2 {
			return false
		}
		since, _ := list.Locks[0]["held_since"].(map[string]any) // if the program's answer comes late, this is the server's guess
		return since["source"] == "library"
	}, "a holder, which says since when, and a waiter")
	release()
	done(t, hook)

	require.Len(t, list.Locks, 2)
	for i, lock := range list.Locks {
		for _, field := range []string{"pid", "application_name", "state", "query_start", "namespace", "entity_id", "mode", "granted", "duration"} {
			assert.NotNil(t, lock[field], "%s of lock %d", field, i)
		}
		assert.Equal(t, "agent", lock["namespace"])
		assert.Equal(t, strconv.Itoa(int(x.AgentID)), lock["entity_id"])
		assert.Equal(t, "ExclusiveLock", lock["mode"])
	}
	holder, waiter := list.Locks[0], list.Locks[1]
	assert.Equal(t, true, holder["granted"])
	assert.Equal(t, "agents/a", holder["application_name"])
	assert.Equal(t, "library", holder["held_since"].(map[string]any)["source"], "the program knows when it took its locks")
	assert.Equal(t, false, waiter["granted"])
	assert.Equal(t, "agents/b", waiter["application_name"])
	assert.Equal(t, []any{holder["pid"]}, waiter["blocked_by"])
}
