package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
)

// Leader returns the holder of the election lock, on a short-lived connection of its own. ok is false if
// there is none. If the election has terms, a holder without a term does not lead: it is a candidate that
// is taking over, or not a candidate at all. Fields that the role may not see are zero.
func (b *Backend) Leader(ctx context.Context) (holder driver.Holder, ok bool, err error) {
	err = pgreach.Do(ctx, b.plain, func(conn *pgx.Conn) error {
		var h session.Holder
		if h, ok, err = pgsession.HolderOf(ctx, conn.PgConn(), b.config.Key.Tag()); err != nil || !ok {
			return err
		}
		holder.Identity, holder.Detail = h.ApplicationName, detail(h)
		if b.config.NoTerms {
			return nil
		}
		return b.readTerm(askOn(ctx, conn.PgConn()), h, &holder)
	})
	if err != nil {
		return driver.Holder{}, false, fmt.Errorf("leader: looking for the leader of %v: %w", b.config.Key, err)
	}
	return holder, ok, nil
}

func detail(h session.Holder) string {
	if h.ClientAddr == "" {
		return fmt.Sprintf("pid %d", h.PID)
	}
	return fmt.Sprintf("pid %d, %s", h.PID, h.ClientAddr)
}

// askOn returns a function that runs statements of one row on a connection, as Query does on a session.
func askOn(ctx context.Context, conn *pgconn.PgConn) func(sql string) ([]string, error) {
	return func(sql string) ([]string, error) {
		results, err := conn.Exec(ctx, sql).ReadAll()
		if err != nil {
			return nil, err
		}
		var row []string
		for _, value := range results[0].Rows[0] {
			row = append(row, string(value))
		}
		return row, nil
	}
}

// readTerm adds the table's data about the session that holds the lock. ask runs a statement of one row.
func (b *Backend) readTerm(ask func(sql string) ([]string, error), h session.Holder, holder *driver.Holder) error {
	start := ""
	if !h.BackendStart.IsZero() { // otherwise hidden from this role
		start = fmt.Sprintf(` AND (pg_catalog.date_part('epoch', backend_start) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 OPERATOR(pg_catalog.=) %d`,
			h.BackendStart.UnixMicro())
	}
	row, err := ask(fmt.Sprintf(`SELECT t.identity, t.era, t.n, t.since, pg_catalog.pg_backend_pid()
	FROM (SELECT 1) AS one LEFT JOIN (SELECT identity, era, n,
		(pg_catalog.date_part('epoch', since) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 AS since FROM %s
		WHERE election OPERATOR(pg_catalog.=) %s AND pid OPERATOR(pg_catalog.=) %d%s) AS t ON true`,
		b.table, b.electionSQL(), int32(h.PID), start))
	switch state := sqlstate.Of(err); {
	case state == sqlstate.UndefinedTable, state == sqlstate.Privilege, err == nil && row[2] == "":
		return nil // the holder does not lead yet, or the table shows nothing
	case err != nil:
		return err
	}
	era, eraErr := strconv.ParseUint(row[1], 10, 16)
	n, nErr := strconv.ParseUint(row[2], 10, 64)
	since, sinceErr := strconv.ParseInt(row[3], 10, 64)
	if eraErr != nil || nErr != nil || sinceErr != nil {
		return fmt.Errorf("term %q.%q since %q: no numbers", row[1], row[2], row[3])
	}
	holder.Identity, holder.Since = row[0], time.UnixMicro(since)
	holder.Term.Era, holder.Term.N = uint16(era), n
	return nil
}
