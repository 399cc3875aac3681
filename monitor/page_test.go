package monitor_test

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
)

type listed struct {
	Locks []struct {
		PID     uint32
		Granted bool
		Key     struct{ Text string }
	}
	Total int
	Next  string
}

func TestALongListComesInPagesThatHaveEachLockOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder, waiter, other := clitest.Connect(t, dsn, "holder"), clitest.Connect(t, dsn, "waiter"), clitest.Connect(t, dsn, "other")
	run(t, holder, "SELECT pg_advisory_lock(9, g) FROM generate_series(-600, 600) AS g")
	run(t, holder, "SELECT pg_advisory_lock(g) FROM generate_series(-50, 50) AS g")
	for _, conn := range []string{"a", "b", "c"} {
		run(t, clitest.Connect(t, dsn, conn), "SELECT pg_advisory_lock_shared(8, 1)")
	}
	clitest.WaitFor(t, dsn, waiter, "SELECT pg_advisory_lock(8, 1)")
	clitest.WaitFor(t, dsn, other, "SELECT pg_advisory_lock(9, 600)")
	h := open(t, monitor.Config{DSN: dsn}).Handler()
	const all = 1201 + 101 + 4 + 1
	for _, c := range []struct {
		filter             string
		limit, total, most int
	}{{"", 0, all, 1000}, {"", 100, all, 100}, {"", 10_000, all, 10_000}, {"namespace=8", 1, 4, 1}, {"state=waiting", 1, 2, 1}, {"q=9:", 500, 1202, 500}} {
		query := c.filter
		if c.limit > 0 {
			query += fmt.Sprintf("&limit=%d", c.limit)
		}
		seen, pages := map[string]int{}, 0
		for next := ""; ; pages++ {
			target := "/api/advisory-locks?" + query
			if next != "" {
				target += "&after=" + url.QueryEscape(next)
			}
			l := decode[listed](t, get(t, h, target))
			require.Equal(t, c.total, l.Total, target)
			require.LessOrEqual(t, len(l.Locks), c.most, target)
			require.NotEmpty(t, l.Locks, target)
			for _, lock := range l.Locks {
				seen[fmt.Sprint(lock.Key.Text, lock.PID, lock.Granted)]++
			}
			if next = l.Next; next == "" {
				break
			}
			require.Len(t, l.Locks, c.most, "only the last page is shorter")
		}
		assert.Len(t, seen, c.total, query)
		for lock, n := range seen {
			require.Equal(t, 1, n, lock)
		}
		assert.Equal(t, (c.total-1)/c.most, pages, query)
	}
}

func TestAPositionThatIsGoneIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder := clitest.Connect(t, dsn, "holder")
	run(t, holder, "SELECT pg_advisory_lock(9, g) FROM generate_series(1, 5) AS g")
	h := open(t, monitor.Config{DSN: dsn}).Handler()
	first := decode[listed](t, get(t, h, "/api/advisory-locks?limit=2"))
	run(t, holder, "SELECT pg_advisory_unlock(9, 2)")
	rest := decode[listed](t, get(t, h, "/api/advisory-locks?after="+first.Next))
	require.Len(t, rest.Locks, 3)
	assert.Equal(t, "9:3", rest.Locks[0].Key.Text)
	assert.Equal(t, 4, rest.Total)
	assert.Empty(t, rest.Next)
}
