package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
	"github.com/pglatch/pglatch/leader/postgres/internal/pgelection"
)

// Observe is like Leader, but uses the session on which this node takes part in the election. It
// opens no connection.
func (b *Backend) Observe(ctx context.Context) (holder driver.Holder, ok bool, err error) {
	err = b.onLockSession(ctx, func(t *lockSession) error {
		if err := t.session.Ping(); err != nil { // the ping ends the watch
			return err
		}
		h, held, err := t.session.Holder(b.config.Key.Tag())
		if err != nil || !held {
			return err
		}
		ok, holder.Identity, holder.Detail = true, h.ApplicationName, detail(h)
		if b.config.NoTerms {
			return nil
		}
		return b.readTermOn(t.session, h, &holder)
	})
	if err != nil {
		return driver.Holder{}, false, fmt.Errorf("leader: looking for the leader of %v: %w", b.config.Key, pgreach.Unreachable(err))
	}
	return holder, ok, nil
}

// Contested reports whether another session holds the election lock or waits for it.
func (b *Backend) Contested(ctx context.Context) (contested bool, err error) {
	err = b.onLockSession(ctx, func(t *lockSession) error {
		contested, err = pgelection.Contested(t.session, b.config.Key.Tag())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("leader: looking for candidates for %v: %w", b.config.Key, pgreach.Unreachable(err))
	}
	return contested, nil
}

// onLockSession calls do with this node's session. It fails if there is none.
func (b *Backend) onLockSession(ctx context.Context, do func(*lockSession) error) error {
	t := b.current
	if t == nil {
		return pgreach.Connection(errors.New("there is no session"))
	}
	t.settle(ctx)
	stop := t.within(ctx)
	err := do(t)
	stop()
	if lost := t.lost(); lost != nil {
		b.closeSession()
		return pgreach.Connection(lost)
	}
	t.rest()
	return err
}

// readTermOn is readTerm on a session.
func (b *Backend) readTermOn(s *pgsession.Session, h session.Holder, holder *driver.Holder) error {
	start := ""
	if !h.BackendStart.IsZero() { // otherwise hidden from this role
		start = fmt.Sprintf(` AND (pg_catalog.date_part('epoch', backend_start) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 OPERATOR(pg_catalog.=) %d`,
			h.BackendStart.UnixMicro())
	}
	row, err := s.Query(fmt.Sprintf(`SELECT t.identity, t.era, t.n, t.since, pg_catalog.pg_backend_pid()
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
