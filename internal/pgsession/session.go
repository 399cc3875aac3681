package pgsession

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// A Session is one use of a connection: of a pooled one from Acquire to Close, of a
// dialled one until Close.
type Session struct {
	from  *maker
	pool  *Pool // nil for a dialled session, like conn
	conn  *pgxpool.Conn
	link  *link
	locks int // that are held, by the using goroutine, which alone knows of the next two

	transaction byte      // of the last answer: none, open or failed
	begun       time.Time // the transaction

	deadline  atomic.Int64 // boottime at which the lease on the session ends for its owner; 0 before the first answer
	pingSent  atomic.Int64 // boottime of the outstanding ping; 0 = none
	verified  atomic.Int64 // boottime of the last look that found nothing; 0 = none
	lost      atomic.Pointer[session.LostError]
	interrupt chan struct{}
	batch     *batch // nil before the first one
	wire      wire

	mu          sync.Mutex
	ended       bool               // the connection is not ours any more
	cancelWatch context.CancelFunc // nil = there is no watch
	watchDone   chan struct{}
	pingUntil   time.Time // the watch was called off, and its ping is worth waiting for until then; zero = it was not
}

var _ session.Session = (*Session)(nil)

// graceInHurry is how long a statement may still take when nobody waits for it.
const graceInHurry = 200 * time.Millisecond

func newSession(m *maker, l *link) *Session {
	s := &Session{from: m, link: l, interrupt: make(chan struct{}, 1)}
	return s
}

// PID is the server's number for the session.
func (s *Session) PID() uint32 { return s.link.pid }

// Checks reports whether the server can look during a statement whether its client
// has gone.
func (s *Session) Checks() bool { return s.link.checks }

// LockTable is how many locks the server has room for, at least.
func (s *Session) LockTable() int64 { return s.from.lockTable.Load() }

// Look tells the state of the session now, which is time.Now(). PostgreSQL tells the
// client before it gives the locks of a session back, and the kernel closes the socket of
// a backend that was killed: while nothing has come, the session held its locks, up to the
// time that the message is on its way. That a network is silent is for the deadline to
// find out.
func (s *Session) Look(now time.Time, closely bool) session.Status {
	status := session.Status{PID: s.link.pid, State: s.state(now), Loss: s.loss()}
	if closely && status.State == session.Held {
		status.Verified = s.verify(now)
	}
	return status
}

func (s *Session) state(at time.Time) session.State {
	now := int64(s.from.clock.At(at))
	deadline, ping := s.deadline.Load(), s.pingSent.Load()
	switch {
	case s.lost.Load() != nil, deadline != 0 && now >= deadline:
		return session.Lost
	case ping != 0 && now-ping > int64(s.from.config.T/6):
		return session.Doubtful
	}
	return session.Held
}

// loss says why the session is lost, if it is not only that its time is over.
func (s *Session) loss() error {
	if lost := s.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// verify looks at the socket if the last look is too old, and returns when the session was seen alive; zero = that is not known.
func (s *Session) verify(now time.Time) time.Time {
	at := int64(s.from.clock.At(now))
	if last := s.verified.Load(); at-last < int64(session.VerifiedFor)/2 { // a mutex can take the other half
		return now.Add(-time.Duration(at - last))
	}
	if s.link.received == nil || !s.link.received.nothingNew() {
		return time.Time{}
	}
	s.verified.Store(at)
	return now
}

// attempts is how often a statement that a cancel request hit is sent.
const attempts = 20

// Query runs a statement of one row whose last column is pg_backend_pid() and
// returns the other columns as text. An error of the server's leaves the session
// as it was. It ends a watch.
func (s *Session) Query(sql string) (row []string, err error) {
	return s.QueryWithin(s.from.config.statementBound(), sql)
}

// QueryWithin is Query with a bound of its own, after which the session is lost. What the session holds bounds it too.
func (s *Session) QueryWithin(bound time.Duration, sql string) (row []string, err error) {
	s.stopWatch()
	for range attempts {
		if row, err = s.text(sql, bound); sqlstate.Of(err) != sqlstate.QueryCanceled {
			break // else a late cancel request, meant for a wait before, undid it
		}
	}
	return row, err
}

// text runs SQL without parameters, as one message, and is Query without a second attempt.
func (s *Session) text(sql string, bound time.Duration) ([]string, error) {
	if lost := s.lost.Load(); lost != nil {
		return nil, lost
	}
	if err := s.endTransaction(); err != nil {
		return nil, err
	}
	sent, pid := boottime.Now(), uint32(0)
	s.setDeadline(s.within(bound, sent))
	row, err := queryRow(context.Background(), s.link.conn, sql)
	if err == nil {
		pid, row = parsePID(row[len(row)-1]), row[:len(row)-1]
	}
	return row, s.settle(sent, pid, err)
}

// within cuts a bound to the time for which the owners of the locks that the
// session holds may rely on them: a silent server is a loss for them by then.
func (s *Session) within(bound, now time.Duration) time.Duration {
	if s.locks == 0 {
		return bound
	}
	return max(min(bound, time.Duration(s.deadline.Load())-now), time.Millisecond)
}

// settle judges an answer: an error of the server leaves the session alive and
// proves nothing, any other error and any other backend end it.
func (s *Session) settle(sent time.Duration, pid uint32, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return s.lose(fmt.Errorf("%w: %w", session.ErrSilent, err))
	case err != nil && (sqlstate.Of(err) == "" || s.link.conn.IsClosed()):
		return s.lose(err)
	case err != nil:
		return err
	case pid != s.link.pid:
		return s.lose(fmt.Errorf("%w: backend %d answered instead of %d", session.ErrPooler, pid, s.link.pid))
	}
	s.from.counters.pidChecks.Add(1)
	s.deadline.Store(int64(sent + s.from.config.T - s.from.config.margin()))
	s.link.judged()
	return nil
}

// Kill ends the session from any goroutine.
func (s *Session) Kill(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		_ = s.lose(cause)
	}
}

// lose ends the session for ever, once; it returns the first cause.
func (s *Session) lose(cause error) error {
	lost := &session.LostError{Cause: cause}
	if !s.lost.CompareAndSwap(nil, lost) {
		return s.lost.Load()
	}
	s.from.counters.lost.Add(1)
	// Only the socket: pgx's own connection belongs to the using goroutine.
	_ = s.link.conn.Conn().Close()
	return lost
}

// Close ends the session, and with it every lock; or it gives the connection back to the
// pool, if reuse is true, it is of one, and nothing is held or in doubt.
func (s *Session) Close(reuse bool) {
	s.stopWatch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.from.lineage.leave(s)
	// Under mu: the pool must not take one that was killed for a connection that lives.
	if !reuse || s.pool == nil || s.locks != 0 || s.lost.Load() != nil {
		closeNow(s.link.conn)
	}
	if s.conn != nil {
		s.conn.Release() // which destroys a closed connection
	}
}

// Hurry bounds the statement that is under way, if any, to a short grace. It can
// come late: a watch, which waits for nothing in particular, must not hear of it.
func (s *Session) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && s.cancelWatch == nil {
		s.setDeadline(graceInHurry)
	}
}
