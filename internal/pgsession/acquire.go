package pgsession

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// Try takes the lock if it is free. A canceled try is repeated: true then means
// that the lock is held, whichever attempt took it.
func (s *Session) Try(tag namespace.Tag, mode session.Mode) (bool, error) {
	s.stopWatch()
	ok, again, err := s.retry(s.link.statements.try[shapeOf(tag, mode).index()], s.tryParams(tag, mode, namespace.Tag{}))
	if err != nil {
		return false, s.failedAcquire(err, hold{tag: tag, mode: mode})
	}
	if ok {
		s.took(tag, mode, again)
	}
	return ok, nil
}

// failedAcquire types an error after which the lock is not held: the session is
// cleared, or of this lock only if it carries others, and closed if that fails.
func (s *Session) failedAcquire(err error, h hold) error {
	if lost := s.lost.Load(); lost != nil {
		return lost
	}
	if sqlState(err) == codeOutOfMemory {
		err = lockTableFull(err)
	}
	if len(s.held) > 0 {
		if !h.tag.Valid() || s.unlockRest(h) != nil {
			return s.lose(err)
		}
		return err
	}
	if _, _, clearErr := s.retry(s.link.statements.clear, nil); clearErr != nil {
		return s.lose(err)
	}
	return err
}

// Wait waits in the server's queue for one slice: at most limit, and no longer
// than keeps the server's snapshots young. A lock that was granted in the instant in
// which the wait failed is given back, because the server may count it twice.
func (s *Session) Wait(tag namespace.Tag, mode session.Mode, limit time.Duration) (bool, error) {
	s.stopWatch()
	if lost := s.lost.Load(); lost != nil {
		return false, lost
	}
	slice := max(min(limit, s.link.slice), time.Millisecond)
	sent := boottime.Now()
	s.setDeadline(s.within(slice+s.from.config.statementBound(), sent))
	stop := s.cancelOnInterrupt()
	row, err := queryRow(context.Background(), s.link.conn, waitSQL(tag, mode, ms(slice)))
	stop()
	pid := uint32(0)
	if err == nil {
		pid = parsePID(row[1])
	}
	err = s.settle(sent, pid, err)
	switch {
	case inDoubt(err):
		return s.resolve(tag, mode)
	case err != nil:
		return false, s.failedAcquire(err, hold{tag: tag, mode: mode})
	case row[0] == "refused":
		return false, nil
	case row[0] == "resolved":
		return false, s.unlockRest(hold{tag: tag, mode: mode})
	}
	s.took(tag, mode, false)
	return true, nil
}

// resolve gives back what a failed wait was granted, which the session itself is asked
// for: it may count twice, and who waits does so again.
func (s *Session) resolve(tag namespace.Tag, mode session.Mode) (bool, error) {
	ok, _, err := s.retry(s.link.statements.try[shapeOf(tag, mode).index()], s.tryParams(tag, mode, namespace.Tag{}))
	if err != nil {
		return false, s.failedAcquire(err, hold{tag: tag, mode: mode})
	}
	if ok {
		err = s.unlockRest(hold{tag: tag, mode: mode})
	}
	return false, err
}

// Interrupt ends a Wait that is under way, or the next one, soon.
func (s *Session) Interrupt() {
	select {
	case s.interrupt <- struct{}{}:
	default: // already asked
	}
}

const (
	interruptGrace = 10 * time.Millisecond  // most slices that are cut to a deadline end by themselves
	cancelAgain    = 200 * time.Millisecond // a cancel request that arrives between statements has no effect
	cancelBound    = time.Second            // for one cancel request
)

// cancelOnInterrupt sends cancel requests from an Interrupt on, until stop. stop
// blocks until none is under way, so that none is sent during a later statement.
func (s *Session) cancelOnInterrupt() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-s.interrupt:
		}
		for pause := interruptGrace; ; pause = cancelAgain {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			// Not with ctx: a request that is broken off can still arrive, during a later
			// statement, and PgBouncer 1.18 dies of it (its issue #801).
			request, done := context.WithTimeout(context.Background(), cancelBound)
			_ = s.link.conn.CancelRequest(request) // sent again if it did not arrive
			done()
		}
	})
	return func() { cancel(); wg.Wait() }
}

// TryAny takes the first free one of the tags in one round trip.
func (s *Session) TryAny(tags []namespace.Tag) (int, error) {
	s.stopWatch()
	if lost := s.lost.Load(); lost != nil {
		return -1, lost
	}
	sql, row, err := tryAnySQL(tags), []string(nil), error(nil)
	for range attempts {
		sent, pid := boottime.Now(), uint32(0)
		s.setDeadline(s.within(s.from.config.statementBound(), sent))
		if row, err = queryRow(context.Background(), s.link.conn, sql); err == nil {
			pid = parsePID(row[1])
		}
		if err = s.settle(sent, pid, err); err == nil {
			break
		}
		canceled := sqlState(err) == codeQueryCanceled && len(s.held) == 0 // by a request meant for an earlier one
		if err = s.failedAcquire(err, hold{}); !canceled || s.lost.Load() != nil {
			break
		}
	}
	if err != nil {
		return -1, err
	}
	i, err := strconv.Atoi(row[0])
	if err != nil {
		return -1, s.lose(fmt.Errorf("BUG: %q from a try", row[0]))
	}
	if i == 0 {
		return -1, nil
	}
	s.took(tags[i-1], session.Exclusive, false)
	return i - 1, nil
}

// tryAnySQL tries single keys in order; LIMIT pulls one row at a time through the
// filter of a function scan, so that no try follows the first that succeeds.
func tryAnySQL(tags []namespace.Tag) string {
	keys := make([]string, len(tags))
	for i, tag := range tags {
		k, _ := tag.Single()
		keys[i] = strconv.FormatInt(k, 10)
	}
	return fmt.Sprintf(`SELECT coalesce((
	SELECT k.i FROM ROWS FROM (pg_catalog.unnest('{%s}'::pg_catalog.int8[])) WITH ORDINALITY AS k(key, i)
	WHERE pg_catalog.pg_try_advisory_lock(k.key) LIMIT 1), 0), pg_catalog.pg_backend_pid()`, strings.Join(keys, ","))
}

func parsePID(text string) uint32 {
	pid, _ := strconv.ParseUint(text, 10, 32) // 0, which no backend has, if it is no number
	return uint32(pid)
}
