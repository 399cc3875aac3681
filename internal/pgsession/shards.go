package pgsession

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/namespace"
)

// Shards are where the shards of one group live: keys of a namespace, and rows of three tables.
type Shards struct {
	Namespace namespace.Namespace
	// Terms has a row for each shard that was ever claimed: its name, its key and its last term. Members has
	// what each session of a node says of itself, which is valid while the session shares the lock
	// Member. Orders has what people want: pins and drains. All are SQL.
	Terms, Members, Orders string
}

// Member returns the lock that all sessions of the group share: a member is who has one that does. Like
// every derivation it never changes: it is the lock of guards of an Election, but of the text "pglatch shards" ‖ name ‖ "=" ‖ number, and
// so in pglatch's own space.
func (g Shards) Member() namespace.Tag {
	return electionOf([]byte("pglatch shards" + g.Namespace.String())).Guard()
}

// Group is the group's name in the tables, as SQL.
func (g Shards) Group() string { return Literal(g.Namespace.String()) }

// Channel is the group's channel for NOTIFY.
func (g Shards) Channel() string {
	return "pglatch_shards_" + strconv.FormatUint(int8Of(g.Member()), 16)
}

// Key returns a shard's key as one number, which no other form of key of the namespace has: pairs have the
// namespace's number in their upper half, and hashed keys that and more.
func (g Shards) Key(name string) (int64, error) {
	key, err := g.Namespace.Text(name)
	return int64(int8Of(key.Tag())), err
}

// TagOf is the inverse of Key.
func (g Shards) TagOf(key int64) namespace.Tag {
	tag := namespace.Tag{ClassID: uint32(uint64(key) >> 32), ObjID: uint32(key), ObjSubID: namespace.SingleForm}
	if tag.ClassID <= namespace.MaxNumber {
		tag.ObjSubID = namespace.PairForm
	}
	return tag
}

const (
	// firstSingle is the least key that is no pair.
	firstSingle = "281474976710656" // 1 << 48
	shardKeySQL = "CASE WHEN a.key < " + firstSingle + " THEN pg_catalog.%[1]s((a.key >> 32)::pg_catalog.int4, ((a.key << 32) >> 32)::pg_catalog.int4) ELSE pg_catalog.%[1]s(a.key) END"
)

var (
	tryShardSQL    = fmt.Sprintf(shardKeySQL, "pg_try_advisory_lock")
	unlockShardSQL = fmt.Sprintf(shardKeySQL, "pg_advisory_unlock")
)

// claimShardsSQL tries the locks of names, and counts a term for each that it got, in one statement:
//
//   - asked: as many names as there is room for in the lock table;
//   - clear: those whose key no other name has had;
//   - got: those whose lock was free. It is the session's from here, whatever becomes of the statement;
//   - open: those whose row nobody has locked, such as a guarded transaction of an earlier term; or which
//     have none yet. A row that was inserted since the statement's snapshot is waited for;
//   - counted: those whose term was counted. Only these are claimed;
//   - back: the lock of the others is given back.
const claimShardsSQL = `SELECT pg_catalog.set_config('lock_timeout', '%[1]s', true);
WITH wanted AS MATERIALIZED (
	SELECT a.name, a.key FROM ROWS FROM (pg_catalog.unnest(%[2]s::pg_catalog.text[]), pg_catalog.unnest('{%[3]s}'::pg_catalog.int8[])) AS a(name, key)
), locks AS MATERIALIZED (
	SELECT %[10]s AS n
), asked AS MATERIALIZED (
	SELECT name, key FROM wanted LIMIT (SELECT greatest(%[4]d - n, 0) FROM locks)
), other AS MATERIALIZED (
	SELECT a.name, t.name AS other FROM asked AS a JOIN %[5]s AS t ON t.shards = %[6]s AND t.key = a.key AND t.name <> a.name
), clear AS MATERIALIZED (
	SELECT name, key FROM asked WHERE name NOT IN (SELECT name FROM other)
), got AS MATERIALIZED (
	SELECT a.name, a.key FROM clear AS a WHERE %[7]s
), known AS MATERIALIZED (
	SELECT t.name FROM %[5]s AS t WHERE t.shards = %[6]s AND t.name = ANY (ARRAY(SELECT name FROM got))
), unlocked AS MATERIALIZED (
	SELECT t.name FROM %[5]s AS t WHERE t.shards = %[6]s AND t.name = ANY (ARRAY(SELECT name FROM got)) FOR UPDATE SKIP LOCKED
), open AS MATERIALIZED (
	SELECT name, key FROM got WHERE name IN (SELECT name FROM unlocked) OR name NOT IN (SELECT name FROM known)
), counted AS (
	INSERT INTO %[5]s AS t (shards, name, key, era, n, timeline, system_identifier, server_start, written, pid, since)
	SELECT %[6]s, a.name, a.key, 1, 1, ` + TimelineSQL + `, c.system_identifier, pg_catalog.pg_postmaster_start_time(),
		` + WrittenSQL + `, pg_catalog.pg_backend_pid(), pg_catalog.clock_timestamp()
	FROM open AS a, pg_catalog.pg_control_system() AS c
	ON CONFLICT (shards, name) DO UPDATE SET
		era = ` + NextEraSQL + `, n = %[9]s, timeline = excluded.timeline, system_identifier = excluded.system_identifier,
		server_start = excluded.server_start, written = excluded.written, pid = excluded.pid, since = excluded.since
	RETURNING t.name, t.era, t.n
), back AS MATERIALIZED (
	SELECT a.name, %[8]s AS ok FROM got AS a WHERE a.name NOT IN (SELECT name FROM open)
)
SELECT pg_catalog.json_build_object(
	'got', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', name, 'era', era, 'n', n)), '[]') FROM counted),
	'guarded', (SELECT coalesce(pg_catalog.json_agg(name), '[]') FROM back),
	'clashes', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', name, 'other', other)), '[]') FROM other),
	'left_out', (SELECT pg_catalog.count(*) FROM wanted) - (SELECT pg_catalog.count(*) FROM asked),
	'locks', (SELECT n FROM locks))::pg_catalog.text,
	pg_catalog.pg_backend_pid()`

// A ShardClaim is the outcome of one.
type ShardClaim struct {
	Got []struct {
		Name string `json:"name"`
		Era  uint64 `json:"era"`
		N    uint64 `json:"n"`
	} `json:"got"`
	Guarded []string `json:"guarded"` // their rows are locked: transactions of earlier terms are under way
	Clashes []struct {
		Name  string `json:"name"`
		Other string `json:"other"`
	} `json:"clashes"` // names whose key another shard has
	LeftOut int   `json:"left_out"` // for which there was no room among the locks of the server
	Locks   int64 `json:"locks"`    // that there were before it; 0 if they were not counted
}

// ClaimShards makes one attempt for each of keys, by name, of which the session holds none, while the
// server has fewer locks than limit, 0 being that they are not to be counted. wait bounds the wait for a row. After an error that is no loss the session
// holds none of them. It ends a watch.
func (s *Session) ClaimShards(g Shards, keys map[string]int64, limit int64, wait time.Duration) (claim ShardClaim, err error) {
	s.stopWatch()
	names := slices.Sorted(maps.Keys(keys))
	values := make([]int64, len(names))
	for i, name := range names {
		values[i] = keys[name]
	}
	count := "(SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks)"
	if limit == 0 {
		count, limit = "0::pg_catalog.int8", int64(len(names))
	}
	sql := fmt.Sprintf(claimShardsSQL, ms(wait), textArray(names), int8List(values), limit, g.Terms, g.Group(), tryShardSQL, unlockShardSQL, NextTermSQL("false"), count)
	row, err := s.text(sql, s.from.config.statementBound())
	if err == nil {
		err = json.Unmarshal([]byte(row[0]), &claim)
	}
	if err == nil {
		s.locks += len(claim.Got)
		return claim, nil
	}
	if errors.Is(err, session.ErrLost) {
		return ShardClaim{}, err
	}
	if undone := s.unlockShards(values); undone != nil {
		return ShardClaim{}, undone
	}
	return ShardClaim{}, typed(err)
}

// unlockShards gives back every count of locks that a statement may have left. It is as unlockRest.
func (s *Session) unlockShards(keys []int64) (err error) {
	sql := fmt.Sprintf(`SELECT pg_catalog.count(`+unlockShardSQL+`), pg_catalog.pg_backend_pid()
	FROM (SELECT DISTINCT (classid::pg_catalog.int8 << 32) | objid::pg_catalog.int8 AS key FROM pg_catalog.pg_lock_status()
		WHERE locktype = 'advisory' AND granted AND pid = pg_catalog.pg_backend_pid() AND mode = 'ExclusiveLock') AS a
	WHERE a.key = ANY ('{%s}'::pg_catalog.int8[])`, int8List(keys))
	for range attempts {
		var row []string
		row, err = s.text(sql, s.from.config.statementBound())
		switch {
		case err == nil && row[0] == "0":
			return nil
		case err != nil && sqlstate.Of(err) != sqlstate.QueryCanceled:
			return s.lose(err)
		}
	}
	return s.lose(errors.Join(errors.New("locks could not be given back entirely"), err))
}

// ReleaseShards gives locks back that the session holds. After an error, which is a loss, it holds nothing. It ends a watch.
func (s *Session) ReleaseShards(g Shards, keys []int64) error {
	ops := make([]session.Op, len(keys))
	all := make([]*session.Op, len(keys))
	for i, key := range keys {
		ops[i] = session.Op{Tag: g.TagOf(key), Unlock: true}
		all[i] = &ops[i]
	}
	return s.Run(all...)
}

// PassedShards returns how many of these shards have a later term than the given one. It ends a watch.
func (s *Session) PassedShards(g Shards, names []string, eras []uint16, ns []uint64) (int, error) {
	terms := make([]string, len(names))
	for i, name := range names {
		terms[i] = fmt.Sprintf("(%s, %d, %d)", Literal(name), eras[i], ns[i])
	}
	row, err := s.Query(fmt.Sprintf(`SELECT pg_catalog.count(*), pg_catalog.pg_backend_pid() FROM (VALUES %s) AS a(name, era, n)
	JOIN %s AS t ON t.shards = %s AND t.name = a.name WHERE (t.era, t.n) > (a.era, a.n)`, strings.Join(terms, ", "), g.Terms, g.Group()))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(row[0])
}

// lookShardsSQL reads who takes part, who owns what and what people want, unless the digest of all that is known. A digest
// is of the locks, not of the names that these stand for, because a key has one name.
const lookShardsSQL = `
WITH l AS MATERIALIZED (
	SELECT pid, classid::pg_catalog.int8 AS c, objid::pg_catalog.int8 AS o, objsubid, mode FROM pg_catalog.pg_locks
	WHERE locktype = 'advisory' AND granted AND ` + whereDatabase + `
), shard AS MATERIALIZED (
	SELECT (c << 32) | o AS key, pid FROM l WHERE mode = 'ExclusiveLock' AND (objsubid = 2 AND c = %[1]d OR objsubid = 1 AND c >> 16 = %[1]d)
), m AS MATERIALIZED (
	SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(m.pid, m.identity, m.weight, m.list, m.draining) ORDER BY m.announced, m.pid), '[]')::pg_catalog.text AS all
	FROM %[2]s AS m WHERE m.shards = %[3]s AND m.pid IN (
		SELECT pid FROM l WHERE mode = 'ShareLock' AND c = %[4]d AND o = %[5]d AND objsubid = 1)
), w AS MATERIALIZED (
	SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(w.kind, w.subject, w.identity) ORDER BY w.kind, w.subject), '[]')::pg_catalog.text AS all
	FROM %[6]s AS w WHERE w.shards = %[3]s
), v AS MATERIALIZED (
	SELECT pg_catalog.hashtextextended(m.all || w.all || coalesce((SELECT pg_catalog.sum(pg_catalog.hashint8extended(key, pid))::pg_catalog.text FROM shard), ''), 0) AS version
	FROM m, w
)
SELECT version, CASE WHEN version <> %[7]d THEN (SELECT m.all FROM m) END, CASE WHEN version <> %[7]d THEN (SELECT w.all FROM w) END,
	CASE WHEN version <> %[7]d THEN (SELECT coalesce(pg_catalog.json_object_agg(t.name, s.pid), '{}')
		FROM shard AS s JOIN %[8]s AS t ON t.shards = %[3]s AND t.key = s.key)::pg_catalog.text END,
	pg_catalog.pg_backend_pid() FROM v`

// A ShardView is what was seen of a group. Version is never 0; if it was known, the rest is nil.
type ShardView struct {
	Version uint64
	Members []ShardMember     // in the order in which they announced themselves
	Orders  [][3]string       // kind, subject, identity
	Owners  map[string]uint32 // pids by the names of shards
}

// A ShardMember is what a session says of its node.
type ShardMember struct {
	PID      uint32
	Identity string
	Weight   int
	List     uint64
	Draining bool
}

// LookShards looks at the group. It ends a watch.
func (s *Session) LookShards(g Shards, known uint64) (v ShardView, err error) {
	row, err := s.Query(g.lookSQL(known))
	if err != nil {
		return v, err
	}
	return shardViewOf(row)
}

func (g Shards) lookSQL(known uint64) string {
	member := g.Member()
	return fmt.Sprintf(lookShardsSQL, g.Namespace.Number(), g.Members, g.Group(), member.ClassID, member.ObjID, g.Orders, int64(known), g.Terms)
}

func shardViewOf(row []string) (v ShardView, err error) {
	version, err := strconv.ParseInt(row[0], 10, 64)
	if err != nil {
		return v, fmt.Errorf("reading the version of a view: %w", err)
	}
	v.Version = max(uint64(version), 1)
	if row[1] == "" {
		return v, nil
	}
	var members [][5]any
	for i, into := range []any{&members, &v.Orders, &v.Owners} {
		d := json.NewDecoder(strings.NewReader(row[i+1]))
		d.UseNumber()
		if err := d.Decode(into); err != nil {
			return v, fmt.Errorf("reading a view: %w", err)
		}
	}
	for _, each := range members {
		m := ShardMember{PID: uint32(number(each[0])), Weight: int(number(each[2])), List: uint64(number(each[3]))}
		m.Identity, _ = each[1].(string)
		m.Draining, _ = each[4].(bool)
		v.Members = append(v.Members, m)
	}
	return v, nil
}

func number(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return i
}

// textArray is an array of text as SQL.
func textArray(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = Literal(v)
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]"
}

// int8List is the inside of an array's literal.
func int8List(values []int64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.FormatInt(v, 10)
	}
	return strings.Join(texts, ",")
}

// HoldersSQL selects the pids of those who have a lock.
func (s *Session) HoldersSQL(lock namespace.Tag) string {
	return `SELECT pid FROM pg_catalog.pg_locks WHERE pid IS NOT NULL AND granted AND ` + whereKey(lock)
}

// LockTable is how many locks the server has room for, at least.
func (s *Session) LockTable() int64 { return s.from.lockTable.Load() }
