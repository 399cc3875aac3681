package pgsession

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// ErrSlow means that a statement had no answer in time and was cancelled.
var ErrSlow = errors.New("no answer in time")

// Take runs a statement that takes locks. Unlike Query, it cancels the statement if it has no answer within patience;
// the error then matches ErrSlow. taken reads from the answer how many locks the session got. After an error that is
// not a loss the session has none of them: Take then runs undo, which releases leftover locks, once each, and returns
// their number.
func (s *Session) Take(sql string, patience time.Duration, undo string, taken func(row []string) (int, error)) error {
	s.stopWatch()
	row, err := s.textOrCancel(sql, patience)
	if err == nil {
		var n int
		n, err = taken(row)
		if err == nil {
			s.locks += n
			return nil
		}
	}
	if errors.Is(err, session.ErrLost) {
		return err
	}
	if undone := s.giveBack(undo); undone != nil {
		return undone
	}
	return typed(err)
}

// textOrCancel is text, but cancels the statement if it has no answer within patience. The error then matches ErrSlow,
// and the effect of the statement is unknown. If the cancel request meets a commit that waits for a synchronous
// standby, it ends the wait, and the server reports success.
func (s *Session) textOrCancel(sql string, patience time.Duration) ([]string, error) {
	limit, done := context.WithTimeout(context.Background(), patience)
	defer done()
	stop := s.cancelFrom(limit.Done())
	row, err := s.text(sql, s.from.config.statementBound())
	stop()
	if limit.Err() != nil && (err == nil || sqlstate.Of(err) == sqlstate.QueryCanceled) {
		return nil, errors.Join(ErrSlow, err)
	}
	return row, err
}
