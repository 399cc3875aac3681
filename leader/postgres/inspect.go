package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
		return b.readTerm(ctx, conn, h, &holder)
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

// readTerm adds the table's data about the session that holds the lock.
func (b *Backend) readTerm(ctx context.Context, conn *pgx.Conn, h session.Holder, holder *driver.Holder) error {
	var (
		identity string
		term     driver.Term
		since    time.Time
		start    = &h.BackendStart
	)
	if start.IsZero() {
		start = nil // hidden from this role
	}
	err := conn.QueryRow(ctx, `SELECT identity, era, n, since FROM `+b.table+`
	WHERE election OPERATOR(pg_catalog.=) $1 AND pid OPERATOR(pg_catalog.=) $2
		AND ($3::pg_catalog.timestamptz IS NULL OR backend_start OPERATOR(pg_catalog.=) $3)`,
		b.config.Key.Tag().String(), int32(h.PID), start).Scan(&identity, &term.Era, &term.N, &since)
	switch {
	case errors.Is(err, pgx.ErrNoRows), sqlstate.Of(err) == sqlstate.UndefinedTable, sqlstate.Of(err) == sqlstate.Privilege:
		return nil // the holder does not lead yet, or the table shows nothing
	case err != nil:
		return err
	}
	holder.Identity, holder.Term, holder.Since = identity, term, since
	return nil
}
