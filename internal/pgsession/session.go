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

// A Session is one use of a connection: of a pooled one from Acquire to Close, of a dialled one until Close.
type Session struct {
	from  *maker
	pool  *Pool // nil for a dialled session, like conn
	conn  *pgxpool.Conn
	link  *link
	locks int // number of held locks; only the using goroutine accesses it and the next two

	transaction byte      // of the last answer: none, open or failed
	begun       time.Time // the transaction

	deadline  atomic.Int64 // boottime at which the owner's lease on the session ends; 0 before the first answer
	pingSent  atomic.Int64 // boottime of the outstanding ping; 0 = none
	verified  atomic.Int64 // boottime of the last check that found no new data; 0 = none
	lost      atomic.Pointer[session.LostError]
	interrupt chan struct{}
	batch     *batch // nil before the first one
	wire      wire

	mu          sync.Mutex
	ended       bool               // the session no longer owns the connection
	cancelWatch context.CancelFunc // nil = no watch
	watchDone   chan struct{}
	pingUntil   time.Time // the watch was called off, and its ping may be awaited until then; zero = it was not called off
}

var _ session.Session = (*Session)(nil)

// graceInHurry is how long a statement may still take when no caller waits for it.
const graceInHurry = 200 * time.Millisecond

func newSession(m *maker, l *link) *Session {
	s := &Session{from: m, link: l, interrupt: make(chan struct{}, 1)}
	return s
}

// PID is the process id of the session's server process.
func (s *Session) PID() uint32 { return s.link.pid }

// Checks reports whether the server can check during a statement that its client is still connected.
func (s *Session) Checks() bool { return s.link.checks }

// LockTable is the minimum number of locks that the server has room for.
func (s *Session) LockTable() int64 { return s.from.lockTable.Load() }

// Look returns the state of the session at now, which is time.Now(). PostgreSQL notifies the client before it releases
// the locks of a session, and the kernel closes the socket of a killed backend. While no data has arrived, the session
// thus held its locks, except for the time that the message is on its way. A silent network is detected by the
// deadline.
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
	case ping != 0 && now-ping > int64(s.from.times.Timeout):
		return session.Doubtful
	}
	return session.Held
}

// loss returns why the session is lost, unless only its time is over.
func (s *Session) loss() error {
	if lost := s.lost.Load(); lost != nil {
		return lost
	}
	return nil
}

// verify checks the socket if the last check is too old. It returns when the session was seen alive; zero = unknown.
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

// attempts is how often a statement is sent if cancel requests hit it.
const attempts = 20

// Query runs a statement of one row whose last column is pg_backend_pid() and returns the other columns as text. A
// server error leaves the session unchanged. Query ends a watch.
func (s *Session) Query(sql string) (row []string, err error) {
	return s.QueryWithin(s.from.config.statementBound(), sql)
}

// QueryWithin is Query with its own bound, after which the session is lost. The lease on the session's locks also
// bounds it.
func (s *Session) QueryWithin(bound time.Duration, sql string) (row []string, err error) {
	s.stopWatch()
	for range attempts {
		if row, err = s.text(sql, bound); sqlstate.Of(err) != sqlstate.QueryCanceled {
			break // otherwise a late cancel request for an earlier wait undid it
		}
	}
	return row, err
}

// text runs SQL without parameters, as one message. It is Query without a second attempt.
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

// within limits a bound to the time for which owners may rely on the session's locks: after that, a silent server is a
// loss for them.
func (s *Session) within(bound, now time.Duration) time.Duration {
	if s.locks == 0 {
		return bound
	}
	return max(min(bound, time.Duration(s.deadline.Load())-now), time.Millisecond)
}

// settle evaluates an answer. An error of the server leaves the session alive and proves nothing. Any other error, and
// an answer of another backend, end the session.
func (s *Session) settle(sent time.Duration, pid uint32, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return s.lose(fmt.Errorf("%w: %w", session.ErrSilent, err))
	case err != nil && (sqlstate.Of(err) == "" || s.link.conn.IsClosed()):
		return s.lose(err)
	case err != nil:
		return err
	case pid != s.link.pid:
		return s.lose(fmt.Errorf("%w: backend %d answered instead of %d; %s", session.ErrPooler, pid, s.link.pid, proveIt))
	}
	s.from.counters.pidChecks.Add(1)
	s.deadline.Store(int64(sent + s.from.trust))
	s.link.judged()
	return nil
}

// Kill ends the session. Any goroutine may call it.
func (s *Session) Kill(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		_ = s.lose(cause)
	}
}

// lose ends the session permanently, once; it returns the first cause.
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

// Close ends the session, and with it every lock. Instead it returns the connection to the pool if reuse is true, the
// connection is pooled, and no lock is held or in doubt.
func (s *Session) Close(reuse bool) {
	s.stopWatch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.from.lineage.leave(s)
	// Under mu: the pool must not mistake a killed connection for a live one.
	if !reuse || s.pool == nil || s.locks != 0 || s.lost.Load() != nil {
		closeNow(s.link.conn)
	}
	if s.conn != nil {
		s.conn.Release() // destroys a closed connection
	}
}

// Hurry limits the current statement, if any, to a short grace period. It can come late: a watch, which waits for no
// particular answer, must not be affected.
func (s *Session) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && s.cancelWatch == nil {
		s.setDeadline(graceInHurry)
	}
}
