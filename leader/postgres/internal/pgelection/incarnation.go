// Package pgelection queries the server, on a lock session, for the sessions that block an election.
package pgelection

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Incarnation returns another session that holds an incarnation of the election on a key: the leader's session,
// or that of a leadership that has just ended. found is false if there is none. Incarnation ends the watch of s.
func Incarnation(s *pgsession.Session, key namespace.Key) (holder session.Holder, found bool, err error) {
	class := namespace.Tag{ClassID: electionkeys.Of(key.Tag()).ClassID(), ObjSubID: namespace.SingleForm}
	row, err := s.Query(`SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE ` + pgsession.WhereClass(class) + incarnationSQL + `
		AND pid IS DISTINCT FROM pg_catalog.pg_backend_pid()), pg_catalog.pg_backend_pid()`)
	if err != nil || row[0] != "t" {
		return holder, false, err
	}
	row, err = s.Query(fmt.Sprintf(heldBesideSQL, pgsession.WhereDatabase, class.ClassID))
	if err != nil {
		return holder, false, err
	}
	var holders []incarnated
	if err := json.Unmarshal([]byte(row[0]), &holders); err != nil {
		return holder, false, fmt.Errorf("reading who holds incarnations: %w", err)
	}
	for _, h := range holders {
		if !h.ofAnother(key) {
			holder.PID, holder.ApplicationName, found = h.PID, h.ApplicationName, true
		}
	}
	return holder, found, nil
}

// incarnationSQL selects incarnations among the locks of a class. Guards hold their lock shared.
const incarnationSQL = ` AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND granted`

// heldBesideSQL returns, from one look at the lock table, the other sessions that hold an incarnation of a
// class, and all locks that they hold exclusively.
const heldBesideSQL = `
	WITH held AS MATERIALIZED (
		SELECT coalesce(pid, 0) AS pid, classid::pg_catalog.int8 AS classid, objid::pg_catalog.int8 AS objid, objsubid FROM pg_catalog.pg_locks
		WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND granted AND %[1]s
	), holders AS (
		SELECT DISTINCT pid FROM held WHERE classid OPERATOR(pg_catalog.=) %[2]d AND objsubid OPERATOR(pg_catalog.=) 1
			AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
	)
	SELECT coalesce((SELECT pg_catalog.json_agg(pg_catalog.json_build_object('pid', h.pid,
		'application_name', (SELECT a.application_name FROM pg_catalog.pg_stat_get_activity(h.pid) AS a),
		'locks', (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(l.classid, l.objid, l.objsubid))
			FROM held AS l WHERE l.pid OPERATOR(pg_catalog.=) h.pid))) FROM holders AS h)::pg_catalog.text, '[]'), pg_catalog.pg_backend_pid()`

// An incarnated is a session that holds an incarnation. A prepared transaction has pid 0.
type incarnated struct {
	PID             uint32      `json:"pid"`
	ApplicationName string      `json:"application_name"`
	Locks           [][3]uint32 `json:"locks"` // classid, objid, objsubid
}

// ofAnother reports whether the incarnation belongs to another election of the same class as key's. Its
// session then holds the lock of that election. It cannot hold our lock, because the caller holds it. A
// session has one election.
func (i incarnated) ofAnother(key namespace.Key) bool {
	class := electionkeys.Of(key.Tag()).ClassID()
	return i.PID != 0 && slices.ContainsFunc(i.Locks, func(l [3]uint32) bool {
		tag := namespace.Tag{ClassID: l[0], ObjID: l[1], ObjSubID: uint16(l[2])}
		return tag != key.Tag() && tag.ClassID != class && electionkeys.Of(tag).ClassID() == class
	})
}
