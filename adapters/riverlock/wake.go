package riverlock

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/namespace"
)

// A DB is the part of a pool that the Middleware uses; *pgxpool.Pool implements it.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// wakeTimeout bounds the statement that wakes jobs.
const wakeTimeout = 5 * time.Second

// wakeSQL makes jobs that are snoozed for a key ($1, as metadata) available, until $2 jobs are
// awake, and notifies their queues as an insert does. A woken job keeps its place in the queue by
// its age, because it was there before. Jobs of paused queues are not woken: they would keep other
// jobs of the key from running. River itself moves jobs that are available in the future, after a
// snooze of less than 5 s, and scheduled ones.
//
// A unique job changes between states that River requires in UniqueOpts.ByState, so no other job
// can have taken its place.
const wakeSQL = `
WITH waiting AS (
	SELECT j.id, j.state = 'available' AND j.scheduled_at <= now() AS awake
	FROM river_job j
	WHERE j.metadata @> $1::jsonb AND j.state IN ('available', 'scheduled')
		AND NOT EXISTS (SELECT FROM river_queue q WHERE q.name = j.queue AND q.paused_at IS NOT NULL)
), next AS (
	SELECT j.id FROM river_job j JOIN waiting w ON w.id = j.id AND NOT w.awake
	WHERE j.state IN ('available', 'scheduled')
	ORDER BY j.priority, j.id
	LIMIT greatest(0, $2::int - (SELECT count(*) FROM waiting WHERE awake))
	FOR UPDATE OF j SKIP LOCKED
), woken AS (
	UPDATE river_job j SET state = 'available', scheduled_at = j.created_at
	FROM next WHERE j.id = next.id
	RETURNING j.queue
)
SELECT (SELECT count(*) FROM waiting), (SELECT count(pg_notify(coalesce(nullif($3::text, ''), current_schema()) || '.river_insert',
	json_build_object('queue', queue)::text)) FROM (SELECT DISTINCT queue FROM woken) q)`

// wake makes jobs that wait for the key available, until awake of them are. It returns how many
// wait in all.
func (m *Middleware) wake(ctx context.Context, key namespace.Key, awake int) (waiting int, err error) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	mark, err := json.Marshal(map[string]string{MetadataKey: key.Tag().String()})
	if err != nil {
		return 0, err
	}
	sql := wakeSQL
	if m.config.Schema != "" {
		schema := pgx.Identifier{m.config.Schema}.Sanitize()
		sql = strings.NewReplacer("river_job j", schema+".river_job j", "river_queue q", schema+".river_queue q").Replace(sql)
	}
	var queues int
	err = m.db.QueryRow(ctx, sql, string(mark), awake, m.config.Schema).Scan(&waiting, &queues)
	return waiting, err
}
