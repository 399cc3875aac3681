package pgsession

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// Keys of a connection's custom data.
const (
	linkKey   = "pglatch"
	pidKey    = "pglatch pid" // from pg_backend_pid(), before any other query
	originKey = "pglatch origin"
)

// connConfig returns the caller's connection settings, adapted for a lock session.
func (m *maker) connConfig() *pgx.ConnConfig {
	cc := m.config.connConfig()
	cc.ValidateConnect = m.validate(cc.ValidateConnect)
	return cc
}

// validate makes pgx skip unsuitable servers in a list of hosts: a standby has a separate lock space, and
// so has a primary from before a promotion. Read-only-ness is not the test, because a role's default can
// make a primary read-only.
func (m *maker) validate(next pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		at, standby, err := identify(ctx, conn)
		switch {
		case err != nil:
			return err
		case standby:
			return pgconn.ErrStandbyConnection
		}
		if err := m.lineage.check(at, conn); err != nil {
			return err
		}
		conn.CustomData()[originKey] = at
		if next == nil {
			return nil
		}
		return next(ctx, conn)
	}
}

// identify asks a server for its identity, and for the pid of the process that answers. If the role may
// not call the origin functions, or the server has none, the origin is unknown and not checked.
func identify(ctx context.Context, conn *pgconn.PgConn) (at origin, standby bool, err error) {
	const who = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid()"
	row, err := queryFirst(ctx, conn, who+", "+originSQL)
	if code := sqlstate.Of(err); code != "" && code != sqlstate.QueryCanceled && !strings.HasPrefix(code, sqlstate.ClassInternal) && !conn.IsClosed() {
		row, err = queryFirst(ctx, conn, who)
	}
	if err != nil {
		return at, false, err
	}
	conn.CustomData()[pidKey] = parsePID(row[1])
	if len(row) > 2 {
		at = parseOrigin(row[2], row[3])
	}
	return at, row[0] == "t", nil
}
