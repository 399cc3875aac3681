package introspect

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
)

// rights are the rights of the role that asks.
type rights struct {
	request bool     // it could end this process' sessions anyway
	read    bool     // it may see entities and labels, independently of Config.Readers
	of      []string // the roles among the Configs' Readers that it is a member of
}

// rightsSQL returns the rights of a session's role. A member of pg_read_all_stats can read all queries, so it
// may see entities too.
const rightsSQL = `SELECT pg_catalog.pg_has_role(usesysid, current_user, 'USAGE') OR pg_catalog.pg_has_role(usesysid, 'pg_signal_backend', 'USAGE'),
	pg_catalog.pg_has_role(usesysid, current_user, 'USAGE') OR pg_catalog.pg_has_role(usesysid, 'pg_read_all_stats', 'USAGE'),
	ARRAY(SELECT rolname::pg_catalog.text FROM pg_catalog.pg_roles
		WHERE rolname OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.text[]) AND pg_catalog.pg_has_role(usesysid, oid, 'USAGE'))
	FROM pg_catalog.pg_stat_activity WHERE pid OPERATOR(pg_catalog.=) $1 AND usesysid IS NOT NULL`

// rightsOf returns the rights of the session that sent a notification. PostgreSQL reports the sender's pid. A
// session that has ended has no rights.
func rightsOf(ctx context.Context, conn *pgx.Conn, pid uint32, readers []string) (r rights, err error) {
	err = conn.QueryRow(ctx, rightsSQL, pgx.QueryExecModeExec, int32(pid), readers).Scan(&r.request, &r.read, &r.of)
	if errors.Is(err, pgx.ErrNoRows) {
		return rights{}, nil
	}
	return r, err
}

// hides reports whether a role may not see entities and labels.
func (c Config) hides(r rights) bool {
	return c.HideEntities || !r.read && !slices.ContainsFunc(c.Readers, func(role string) bool { return slices.Contains(r.of, role) })
}

// readers returns the roles that the members' Configs name.
func (r *responder) readers() []string {
	all := []string{}
	for _, m := range r.sources() {
		all = append(all, m.Config.Readers...)
	}
	return all
}
