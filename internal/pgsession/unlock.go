package pgsession

import (
	"context"
	"errors"
	"fmt"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Unlock gives one lock back. nil means that the server said that it was held; a
// *session.LostError that it was not, or that the session is gone.
func (s *Session) Unlock(tag namespace.Tag, mode session.Mode) error {
	s.stopWatch()
	h, ok := s.gave(tag, mode)
	if !ok {
		return fmt.Errorf("BUG: unlock of %v, which the session does not hold", tag)
	}
	again, err := s.unlock(h)
	switch {
	case err != nil || !again && !h.doubled:
		return err
	case len(s.held) == 0:
		return s.clear()
	}
	return s.unlockRest(h)
}

// UnlockAll gives every lock back: the answer to the first unlock proves that the
// session is the one that held them.
func (s *Session) UnlockAll() error {
	s.stopWatch()
	if len(s.held) == 0 {
		return s.clear()
	}
	first, rest := s.held[0], len(s.held) > 1
	s.held = nil
	again, err := s.unlock(first)
	if err != nil || !rest && !again && !first.doubled {
		return err
	}
	return s.clear()
}

// unlock gives a lock back once. The effect of a canceled unlock is not undone,
// so after one, again, the answer false is no loss.
func (s *Session) unlock(h hold) (again bool, err error) {
	ok, again, err := s.retry(s.link.statements.unlock[shapeOf(h.tag, h.mode).index()], s.keyParams(h.tag))
	switch {
	case err != nil:
		return again, s.lose(err)
	case !ok && !again:
		return again, s.lose(errNotHeld)
	}
	return again, nil
}

// clear gives back whatever the server still counts for the session.
func (s *Session) clear() error {
	if _, _, err := s.retry(s.link.statements.clear, nil); err != nil {
		return s.lose(err)
	}
	return nil
}

// unlockRest gives back the further counts of one lock, if there are any, on a
// session that goes on holding others. The condition avoids the warning that PostgreSQL
// logs for an unlock of what is not held. It opens no relation, which can fail while
// the lock table is full.
func (s *Session) unlockRest(h hold) error {
	suffix, args := literals(h.tag, h.mode)
	sql := fmt.Sprintf(`SELECT pg_catalog.count(pg_catalog.pg_advisory_unlock%s(%s)), pg_catalog.pg_backend_pid()
	FROM pg_catalog.pg_lock_status() WHERE %s AND granted AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()`,
		suffix, args, whereForm(h.tag)+whereObject(h.tag))
	var err error
	for range 2 * attempts {
		sent, pid := boottime.Now(), uint32(0)
		s.setDeadline(s.within(s.from.config.statementBound(), sent))
		var row []string
		if row, err = queryRow(context.Background(), s.link.conn, sql); err == nil {
			pid = parsePID(row[1])
		}
		err = s.settle(sent, pid, err)
		switch {
		case err == nil && row[0] == "0":
			return nil
		case err != nil && sqlState(err) != codeQueryCanceled:
			return s.lose(err)
		}
	}
	return s.lose(errors.Join(errors.New("a lock could not be given back entirely"), err))
}
