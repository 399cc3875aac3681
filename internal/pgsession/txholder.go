package pgsession

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// whereParameters is WhereKey for a tag in the parameters from $2 on: classid, objid, objsubid.
const whereParameters = `locktype OPERATOR(pg_catalog.=) 'advisory' AND classid::pg_catalog.int8 OPERATOR(pg_catalog.=) $2::pg_catalog.int8
	AND objid::pg_catalog.int8 OPERATOR(pg_catalog.=) $3::pg_catalog.int8 AND objsubid OPERATOR(pg_catalog.=) $4::pg_catalog.int2 AND ` + WhereDatabase

func tagArgs(tag namespace.Tag) []any {
	return []any{int64(tag.ClassID), int64(tag.ObjID), tag.ObjSubID}
}

// pidArray is an array of pids, as text.
func pidArray(pids []uint32) string {
	elements := make([]string, len(pids))
	for i, pid := range pids {
		elements[i] = strconv.FormatUint(uint64(pid), 10)
	}
	return braces(elements)
}

// TxHolder is Session.Holder in a caller's transaction, which must be usable.
func TxHolder(ctx context.Context, tx Tx, tag namespace.Tag) (holder session.Holder, ok bool, err error) {
	answer, err := TxAsk(ctx, tx, txHolderSQL, tagArgs(tag)...)
	if err != nil || answer == "" {
		return holder, false, err
	}
	var columns [len(holderColumns{})]*string
	if err := json.Unmarshal([]byte(answer), &columns); err != nil {
		return holder, false, err
	}
	var values holderColumns
	for i, c := range columns {
		if c != nil {
			values[i] = *c
		}
	}
	return holderFrom(values), true, nil
}

// txHolderSQL discards the cached contents of pg_stat_activity: PostgreSQL shows a transaction the same rows until
// its end.
var txHolderSQL = `SELECT pg_catalog.set_config('pglatch.outcome', pg_catalog.concat($1::pg_catalog.text, CASE WHEN pg_catalog.pg_stat_clear_snapshot() IS NOT NULL THEN (
	SELECT pg_catalog.json_build_array(h.pid::pg_catalog.text, h.mode, h.application_name, h.addr, h.state, h.start::pg_catalog.text, h.prepared, h.transaction::pg_catalog.text)
	FROM (` + holderWhere(whereParameters) + `) AS h) END), true)`

// TxHeldBy reports whether one of the sessions holds the lock. writer is whether any session holds it, or its
// turnstile, in exclusive mode, or waits for it in that mode.
func TxHeldBy(ctx context.Context, tx Tx, tag namespace.Tag, pids []uint32) (held, writer bool, err error) {
	gate := turnstile.Of(tag)
	answer, err := TxAsk(ctx, tx, txHeldBySQL, append(tagArgs(tag), pidArray(pids), int64(gate.ClassID), int64(gate.ObjID))...)
	return strings.Contains(answer, "held"), strings.Contains(answer, "writer"), err
}

const txHeldBySQL = `SELECT pg_catalog.set_config('pglatch.outcome', pg_catalog.concat($1::pg_catalog.text,
	CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks WHERE ` + whereParameters + ` AND granted AND pid OPERATOR(pg_catalog.=) ANY ($5::pg_catalog.text::pg_catalog.int4[])) THEN 'held ' END,
	CASE WHEN EXISTS (SELECT FROM pg_catalog.pg_locks WHERE mode OPERATOR(pg_catalog.=) 'ExclusiveLock' AND (` + whereParameters + ` OR
		locktype OPERATOR(pg_catalog.=) 'advisory' AND classid::pg_catalog.int8 OPERATOR(pg_catalog.=) $6::pg_catalog.int8
		AND objid::pg_catalog.int8 OPERATOR(pg_catalog.=) $7::pg_catalog.int8 AND objsubid OPERATOR(pg_catalog.=) 1 AND ` + WhereDatabase + `)) THEN 'writer' END), true)`
