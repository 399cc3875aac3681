package pgsession

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/namespace"
)

// Try takes the lock if it is free.
func (s *Session) Try(tag namespace.Tag, mode session.Mode) (bool, error) {
	op := &session.Op{Tag: tag, Mode: mode}
	if err := s.Run(op); err != nil {
		return false, err
	}
	return op.Held, op.Err
}

// Unlock releases one lock. nil means that the server confirmed the hold. A *session.LostError means that the lock was
// not held, or that the session is gone.
func (s *Session) Unlock(tag namespace.Tag, mode session.Mode) error {
	return s.Run(&session.Op{Tag: tag, Mode: mode, Unlock: true})
}

// Interrupt ends the current Wait, or the next one, soon.
func (s *Session) Interrupt() {
	select {
	case s.interrupt <- struct{}{}:
	default: // already requested
	}
}

func parsePID(text string) uint32 {
	pid, _ := strconv.ParseUint(text, 10, 32) // 0, which no backend has, if it is not a number
	return uint32(pid)
}

// Wait waits in the server's queue for one wait step: at most limit, and not longer than keeps the server's snapshots
// young. A lock that was granted at the instant when the wait failed is released, because the server may count it
// twice.
func (s *Session) Wait(tag namespace.Tag, mode session.Mode, limit time.Duration) (bool, error) {
	s.stopWatch()
	if lost := s.lost.Load(); lost != nil {
		return false, lost
	}
	step := max(min(limit, s.link.waitStep), time.Millisecond)
	stop := s.cancelFrom(s.interrupt)
	row, err := s.text(waitSQL(tag, mode, Milliseconds(step)), step+s.from.config.statementBound())
	stop()
	switch {
	case errors.Is(err, session.ErrLost):
		return false, err
	case err != nil:
		if undone := s.unlockRest(tag, mode); undone != nil || inDoubt(err) {
			return false, undone
		}
		return false, typed(err)
	case row[0] == "refused":
		return false, nil
	case row[0] == "resolved":
		return false, s.unlockRest(tag, mode)
	}
	s.locks++
	return true, nil
}

const (
	interruptGrace = 10 * time.Millisecond  // most waits that are cut to a deadline end without a cancel request
	cancelAgain    = 200 * time.Millisecond // a cancel request that arrives between statements has no effect
	cancelBound    = time.Second            // for one cancel request
)

// cancelFrom sends cancel requests from the moment when begin can be received from, until stop. stop blocks until none
// is under way, so that none arrives during a later statement.
func (s *Session) cancelFrom(begin <-chan struct{}) (stop func()) {
	return background.Run(context.Background(), func(ctx context.Context) {
		select {
		case <-ctx.Done():
			return
		case <-begin:
		}
		for d := interruptGrace; pause.For(ctx, d) == nil; d = cancelAgain {
			// Not with ctx: an aborted request can still arrive, during a later statement, and PgBouncer 1.18 crashes
			// on it (its issue #801).
			request, done := context.WithTimeout(context.Background(), cancelBound)
			_ = s.link.conn.CancelRequest(request) // resent if it did not arrive
			done()
		}
	})
}

// unlockRest releases every count of a lock that a wait may have left, on a session that continues to hold others. The
// condition avoids the warning that PostgreSQL logs for the unlock of a lock that is not held. The statement opens no
// relation, because that can fail while the lock table is full.
func (s *Session) unlockRest(tag namespace.Tag, mode session.Mode) error {
	suffix, args := literals(tag, mode)
	sql := fmt.Sprintf(`SELECT pg_catalog.count(pg_catalog.pg_advisory_unlock%s(%s)), pg_catalog.pg_backend_pid()
	FROM pg_catalog.pg_lock_status() WHERE %s AND granted AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()`,
		suffix, args, whereForm(tag)+whereObject(tag))
	return s.giveBack(sql)
}

// giveBack repeats a statement that releases one count of each of some locks, until the statement reports that it
// released none.
func (s *Session) giveBack(sql string) (err error) {
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
