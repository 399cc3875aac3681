package pgsession

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// ErrSlow says that a statement had no answer in time and was cancelled.
var ErrSlow = errors.New("no answer in time")

// Take runs a statement that takes locks, as Query does, except that it cancels it if it has no answer within patience: the error
// matches ErrSlow then. taken reads from the answer how many locks the session has got. After an error that is no loss it has
// none of them: undo, which is run then, gives back what may be left, once each, and answers how many that were.
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

// textOrCancel is text, but cancels the statement if it has no answer within patience; the error matches ErrSlow then. What the statement has done is not known then: a
// cancel request that meets a commit which waits for a synchronous standby ends the wait, and the server answers that all is well.
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
