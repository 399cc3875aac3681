package monitor

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/incident"
)

// commitsSQL counts the commits that wait for a synchronous standby. A role sees those of its own sessions, and with
// pg_read_all_stats all.
const commitsSQL = `
SELECT count(*), coalesce(max(extract(epoch FROM clock_timestamp() - state_change)), 0)::float8,
       coalesce((array_agg(DISTINCT application_name))[1:5], '{}')::text[], current_setting('synchronous_standby_names')
FROM pg_stat_activity WHERE wait_event = 'SyncRep'`

// readCommits reads the row of commitsSQL.
func readCommits(row pgx.Row) (c incident.Commits, err error) {
	var seconds float64
	err = row.Scan(&c.Waiting, &seconds, &c.Who, &c.Standbys)
	c.Longest = time.Duration(seconds * float64(time.Second))
	return c, err
}
