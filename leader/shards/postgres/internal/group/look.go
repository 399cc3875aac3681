package group

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// lookSQL reads the members, the owners with their terms, and the orders, unless the digest of all that is
// known. The digest covers the rows of owned shards, not only the locks: a claim has its lock before its row
// is visible. The rights that a node needs beside those of a look are the last column.
var lookSQL = `
WITH l AS MATERIALIZED (
	SELECT pid, classid::pg_catalog.int8 AS c, objid::pg_catalog.int8 AS o, objsubid, mode FROM pg_catalog.pg_locks
	WHERE locktype = 'advisory' AND granted AND ` + pgsession.WhereDatabase + `
), shard AS MATERIALIZED (
	SELECT (c << 32) | o AS key, pid FROM l WHERE mode = 'ExclusiveLock' AND (objsubid = 2 AND c = %[1]d OR objsubid = 1 AND c >> 16 = %[1]d)
), owner AS MATERIALIZED (
	SELECT s.key, s.pid, t.name, t.era, t.n, ` + fmt.Sprintf(MomentSQL, "t.since") + ` AS moment FROM shard AS s LEFT JOIN %[8]s AS t ON t.shards = %[3]s AND t.key = s.key
), m AS MATERIALIZED (
	SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(m.pid, m.identity, m.weight, m.list, m.draining, m.refuses) ORDER BY m.announced, m.pid), '[]')::pg_catalog.text AS all
	FROM %[2]s AS m WHERE m.shards = %[3]s AND m.pid IN (
		SELECT pid FROM l WHERE mode = 'ShareLock' AND c = %[4]d AND o = %[5]d AND objsubid = 1)
), w AS MATERIALIZED (
	SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(w.kind, w.subject, w.identity) ORDER BY w.kind, w.subject), '[]')::pg_catalog.text AS all
	FROM %[6]s AS w WHERE w.shards = %[3]s
), v AS MATERIALIZED (
	SELECT pg_catalog.hashtextextended(m.all || w.all || coalesce((SELECT pg_catalog.sum(pg_catalog.hashint8extended(key, pid))::pg_catalog.text
		|| '/' || coalesce(pg_catalog.sum(pg_catalog.hashtextextended(name, n + moment))::pg_catalog.text, '') || '/' || coalesce(pg_catalog.sum(era)::pg_catalog.text, '') FROM owner), ''), 0) AS version
	FROM m, w
)
SELECT version, CASE WHEN version <> %[7]d THEN (SELECT m.all FROM m) END, CASE WHEN version <> %[7]d THEN (SELECT w.all FROM w) END,
	CASE WHEN version <> %[7]d THEN (SELECT coalesce(pg_catalog.json_object_agg(name, pg_catalog.json_build_array(pid, era, n, moment)) FILTER (WHERE name IS NOT NULL), '{}')
		FROM owner)::pg_catalog.text END,
	pg_catalog.has_any_column_privilege(%[9]s, 'INSERT') AND pg_catalog.has_any_column_privilege(%[9]s, 'UPDATE') AND pg_catalog.has_table_privilege(%[10]s, 'DELETE')
		AND pg_catalog.has_any_column_privilege(%[10]s, 'INSERT') AND pg_catalog.has_any_column_privilege(%[10]s, 'UPDATE'),
	pg_catalog.pg_backend_pid() FROM v`

// A View is a snapshot of a group. Version is never 0. If the caller knew that Version, the other fields are nil.
type View struct {
	Version uint64
	Members []Member         // in the order in which they announced themselves
	Orders  [][3]string      // kind, subject, identity
	Owners  map[string]Owner // by the names of shards
}

// An Owner is the session that has a shard's lock, with the shard's last term and the moment of its claim.
type Owner struct {
	PID    uint32
	Era    uint16
	N      uint64
	Moment int64 // µs since 1970, by the server's clock; no shard of the same name and term in another database has it
}

// A Member is a session's announcement of its node.
type Member struct {
	PID      uint32
	Identity string
	Weight   int
	List     uint64
	Draining bool
	Refuses  string
}

// ErrRights means that the role may look, but lacks a right that claims or announcements need.
var ErrRights = errors.New("permission denied to write to the tables")

// Look returns a snapshot of the group. It ends the session's watch.
func (g Group) Look(s *pgsession.Session, known uint64) (v View, err error) {
	row, err := s.Query(g.lookQuery(known))
	if err != nil {
		return v, err
	}
	if row[4] != "t" {
		return v, ErrRights
	}
	return viewOf(row)
}

func (g Group) lookQuery(known uint64) string {
	member := g.Member()
	return fmt.Sprintf(lookSQL, g.Namespace.Number(), g.Members, g.NameSQL(), member.ClassID, member.ObjID, g.Orders, int64(known), g.Terms,
		pgsession.Literal(g.Terms), pgsession.Literal(g.Members))
}

func viewOf(row []string) (v View, err error) {
	version, err := strconv.ParseInt(row[0], 10, 64)
	if err != nil {
		return v, fmt.Errorf("reading the version of a view: %w", err)
	}
	v.Version = max(uint64(version), 1)
	if row[1] == "" {
		return v, nil
	}
	var members [][6]any
	var owners map[string][4]json.Number
	for i, into := range []any{&members, &v.Orders, &owners} {
		d := json.NewDecoder(strings.NewReader(row[i+1]))
		d.UseNumber()
		if err := d.Decode(into); err != nil {
			return v, fmt.Errorf("reading a view: %w", err)
		}
	}
	v.Owners = make(map[string]Owner, len(owners))
	for name, row := range owners {
		v.Owners[name] = Owner{uint32(number(row[0])), uint16(number(row[1])), uint64(number(row[2])), number(row[3])}
	}
	for _, each := range members {
		m := Member{PID: uint32(number(each[0])), Weight: int(number(each[2])), List: uint64(number(each[3]))}
		m.Identity, _ = each[1].(string)
		m.Draining, _ = each[4].(bool)
		m.Refuses, _ = each[5].(string)
		v.Members = append(v.Members, m)
	}
	return v, nil
}

func number(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return i
}

// HoldersSQL selects the pids of the sessions that have a lock.
func HoldersSQL(lock namespace.Tag) string {
	return `SELECT pid FROM pg_catalog.pg_locks WHERE pid IS NOT NULL AND granted AND ` + pgsession.WhereKey(lock)
}
