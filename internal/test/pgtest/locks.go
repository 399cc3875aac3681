package pgtest

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// CountLocks counts the advisory locks of a connection's database, granted and waited for. It does
// not count as granted the turnstiles of the keys, and of all locked keys: a waiter for a turnstile
// waits for its key.
func CountLocks(ctx context.Context, conn *pgx.Conn, keys ...namespace.Key) (granted, waiting int, err error) {
	rows, err := conn.Query(ctx, `SELECT classid::int8, objid::int8, objsubid, granted FROM pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	if err != nil {
		return 0, 0, err
	}
	type row struct {
		tag     namespace.Tag
		granted bool
	}
	locks, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (l row, err error) {
		var class, object int64
		err = r.Scan(&class, &object, &l.tag.ObjSubID, &l.granted)
		l.tag.ClassID, l.tag.ObjID = uint32(class), uint32(object)
		return l, err
	})
	turnstiles := make(map[namespace.Tag]bool)
	for _, k := range keys {
		turnstiles[turnstile.Of(k.Tag())] = true
	}
	for _, l := range locks {
		turnstiles[turnstile.Of(l.tag)] = true
	}
	for _, l := range locks {
		switch {
		case !l.granted:
			waiting++
		case !turnstiles[l.tag]:
			granted++
		}
	}
	return granted, waiting, err
}
