package group

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
)

const (
	// firstSingle is the smallest key that is not a pair.
	firstSingle = "281474976710656" // 1 << 48
	keySQL      = "CASE WHEN a.key < " + firstSingle + " THEN pg_catalog.%[1]s((a.key >> 32)::pg_catalog.int4, ((a.key << 32) >> 32)::pg_catalog.int4) ELSE pg_catalog.%[1]s(a.key) END"
)

var (
	trySQL    = fmt.Sprintf(keySQL, "pg_try_advisory_lock")
	unlockSQL = fmt.Sprintf(keySQL, "pg_advisory_unlock")
)

// claimSQL tries the locks of names, and counts a term for each lock that it got, in one statement:
//
//   - asked: as many names as the lock table has room for;
//   - clear: those whose key no other name has had;
//   - got: those whose lock was free. The session now holds it, whatever the outcome of the statement;
//   - open: those whose row is not locked, for example by a guarded transaction of an earlier term, or that
//     have no row yet. The statement waits for a row that was inserted since its snapshot;
//   - counted: those whose term was counted. Only these are claimed;
//   - back: the others, whose lock is released.
var claimSQL = `WITH wanted AS MATERIALIZED (
	SELECT a.name, a.key FROM ROWS FROM (pg_catalog.unnest(%[1]s::pg_catalog.text[]), pg_catalog.unnest('{%[2]s}'::pg_catalog.int8[])) AS a(name, key)
), locks AS MATERIALIZED (
	SELECT %[9]s AS n
), asked AS MATERIALIZED (
	SELECT name, key FROM wanted LIMIT (SELECT greatest(%[3]d - n, 0) FROM locks)
), other AS MATERIALIZED (
	SELECT a.name, t.name AS other FROM asked AS a JOIN %[4]s AS t ON t.shards = %[5]s AND t.key = a.key AND t.name <> a.name
), clear AS MATERIALIZED (
	SELECT name, key FROM asked WHERE name NOT IN (SELECT name FROM other)
), got AS MATERIALIZED (
	SELECT a.name, a.key FROM clear AS a WHERE %[6]s
), known AS MATERIALIZED (
	SELECT t.name FROM %[4]s AS t WHERE t.shards = %[5]s AND t.name = ANY (ARRAY(SELECT name FROM got))
), unlocked AS MATERIALIZED (
	SELECT t.name FROM %[4]s AS t WHERE t.shards = %[5]s AND t.name = ANY (ARRAY(SELECT name FROM got)) FOR UPDATE SKIP LOCKED
), open AS MATERIALIZED (
	SELECT name, key FROM got WHERE name IN (SELECT name FROM unlocked) OR name NOT IN (SELECT name FROM known)
), counted AS (
	INSERT INTO %[4]s AS t (shards, name, key, era, n, timeline, system_identifier, server_start, written, pid, since)
	SELECT %[5]s, a.name, a.key, 1, 1, ` + pgtable.TimelineSQL + `, c.system_identifier, pg_catalog.pg_postmaster_start_time(),
		` + pgtable.WrittenSQL + `, pg_catalog.pg_backend_pid(), pg_catalog.clock_timestamp()
	FROM open AS a, pg_catalog.pg_control_system() AS c
	ON CONFLICT (shards, name) DO UPDATE SET
		key = excluded.key, era = ` + pgtable.NextEraSQL + `, n = %[8]s, timeline = excluded.timeline, system_identifier = excluded.system_identifier,
		server_start = excluded.server_start, written = excluded.written, pid = excluded.pid, since = excluded.since
	RETURNING t.name, t.era, t.n, ` + fmt.Sprintf(MomentSQL, "t.since") + ` AS moment
), back AS MATERIALIZED (
	SELECT a.name, %[7]s AS ok FROM got AS a WHERE a.name NOT IN (SELECT name FROM open)
)
SELECT pg_catalog.json_build_object(
	'got', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', name, 'era', era, 'n', n, 'moment', moment)), '[]') FROM counted),
	'guarded', (SELECT coalesce(pg_catalog.json_agg(name), '[]') FROM back),
	'clashes', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', name, 'other', other)), '[]') FROM other),
	'left_out', (SELECT pg_catalog.count(*) FROM wanted) - (SELECT pg_catalog.count(*) FROM asked),
	'locks', (SELECT n FROM locks))::pg_catalog.text,
	pg_catalog.pg_backend_pid()`

// MomentSQL returns a time as µs since 1970.
const MomentSQL = "(pg_catalog.date_part('epoch', %s) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8"

// A Got is a shard that a claim got, with the term and the moment that an Owner has.
type Got struct {
	Name   string `json:"name"`
	Era    uint64 `json:"era"`
	N      uint64 `json:"n"`
	Moment int64  `json:"moment"`
}

// A Claim is the result of one statement that claims shards.
type Claim struct {
	Got     []Got    `json:"got"`
	Guarded []string `json:"guarded"` // names whose rows are locked: transactions of earlier terms are under way
	Clashes []struct {
		Name  string `json:"name"`
		Other string `json:"other"`
	} `json:"clashes"` // names whose key another shard has
	LeftOut int   `json:"left_out"` // number of names without room in the server's lock table
	Locks   int64 `json:"locks"`    // locks of the server before the claim; 0 if they were not counted
}

// LockTimeout limits how long the session's statements wait for a row or a table, until the session ends. It
// ends the session's watch.
func LockTimeout(s *pgsession.Session, t time.Duration) error {
	_, err := s.Query("SELECT pg_catalog.set_config('lock_timeout', '" + pgsession.Milliseconds(t) + "', false), pg_catalog.pg_backend_pid()")
	return err
}

// Claim makes one attempt for each of keys, by name, while the server has fewer locks than limit. The session
// must not hold any of them yet. limit 0 means not to count locks. If there is no answer within patience, it
// cancels the statement, and the error matches pgsession.ErrSlow. After an error that is not a loss, the
// session holds none of the keys. Claim ends the session's watch.
func (g Group) Claim(s *pgsession.Session, keys map[string]int64, limit int64, patience time.Duration) (claim Claim, err error) {
	names := slices.Sorted(maps.Keys(keys))
	values := make([]int64, len(names))
	for i, name := range names {
		values[i] = keys[name]
	}
	count := "(SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks)"
	if limit == 0 {
		count, limit = "0::pg_catalog.int8", int64(len(names))
	}
	sql := fmt.Sprintf(claimSQL, textArray(names), int8List(values), limit, g.Terms, g.NameSQL(), trySQL, unlockSQL, pgtable.NextTermSQL("false"), count)
	err = s.Take(sql, patience, unlockAllSQL(values), func(row []string) (int, error) {
		if err := json.Unmarshal([]byte(row[0]), &claim); err != nil {
			return 0, err
		}
		return len(claim.Got), nil
	})
	if err != nil {
		return Claim{}, err
	}
	return claim, nil
}

// unlockAllSQL releases one count of each lock that a statement may have left, and returns how many it
// released.
func unlockAllSQL(keys []int64) string {
	return fmt.Sprintf(`SELECT pg_catalog.count(`+unlockSQL+`), pg_catalog.pg_backend_pid()
	FROM (SELECT DISTINCT (classid::pg_catalog.int8 << 32) | objid::pg_catalog.int8 AS key FROM pg_catalog.pg_lock_status()
		WHERE locktype = 'advisory' AND granted AND pid = pg_catalog.pg_backend_pid() AND mode = 'ExclusiveLock') AS a
	WHERE a.key = ANY ('{%s}'::pg_catalog.int8[])`, int8List(keys))
}

// Release releases locks of the session. After an error, which is a loss, the session holds nothing. Release
// ends the session's watch.
func (g Group) Release(s *pgsession.Session, keys []int64) error {
	ops := make([]session.Op, len(keys))
	all := make([]*session.Op, len(keys))
	for i, key := range keys {
		ops[i] = session.Op{Tag: g.TagOf(key), Unlock: true}
		all[i] = &ops[i]
	}
	return s.Run(all...)
}
