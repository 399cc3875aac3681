package prove

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// space is the namespace of the keys: "prov" in ASCII. Namespaces of pglatch end at 32767.
const space = 0x70726f76

// A key is an advisory lock of two integers.
type key struct{ class, object uint32 }

// other returns a second key for the same proof.
func (k key) other() key { return key{k.class, k.object ^ 1} }

func (k key) args() string { return fmt.Sprintf("%d, %d", k.class, k.object) }

// single is the bigint with the same bits. PostgreSQL treats it as a different lock.
func (k key) single() string { return fmt.Sprint(uint64(k.class)<<32 | uint64(k.object)) }

// where is the condition for rows of pg_locks.
func (k key) where() string {
	return fmt.Sprintf("locktype operator(pg_catalog.=) 'advisory' and classid operator(pg_catalog.=) %d::oid and objid operator(pg_catalog.=) %d::oid and objsubid operator(pg_catalog.=) 2", k.class, k.object)
}

// An exam makes the observations of one proof. After an error, its methods do nothing: the missing observations are
// unknown.
type exam struct {
	observation

	ctx   context.Context //nolint:containedctx // of this one proof
	of    *examiner
	key   key
	a, b  *session
	watch *session
	waits sync.WaitGroup
	err   error
}

// open opens those of the three sessions that are not open.
func (x *exam) open() {
	for i, s := range x.of.sessions {
		if s != nil && !s.conn.IsClosed() {
			continue
		}
		x.of.sessions[i] = nil
		if s = x.start(); s != nil {
			x.of.sessions[i] = s
		}
	}
	x.a, x.b, x.watch = x.of.sessions[0], x.of.sessions[1], x.of.sessions[2]
}

// start opens a session.
func (x *exam) start() *session {
	if x.err != nil {
		return nil
	}
	s, err := x.of.open(x.ctx)
	if err != nil {
		x.fail("a connection got no session: %w", err)
		return nil
	}
	return s
}

func (x *exam) fail(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
	}
}

// saw records whether an answer was as expected.
func (x *exam) saw(id string, ok bool) {
	if x.err == nil {
		x.seen[id] = ok
	}
}

// because is saw with a text that says what a wrong answer means.
func (x *exam) because(id string, ok bool, format string, args ...any) {
	x.saw(id, ok)
	if x.err == nil && !ok {
		x.detail[id] = fmt.Sprintf(format, args...)
	}
}

// ask returns the first column of the answer, or "" after an error.
func (x *exam) ask(s *session, list string, rest ...string) string {
	if x.err != nil {
		return ""
	}
	row, err := s.ask(x.ctx, list, rest...)
	if err != nil {
		x.fail("%w", err)
		return ""
	}
	return row[0]
}

// is asks for a boolean.
func (x *exam) is(s *session, list string, rest ...string) bool {
	return x.ask(s, list, rest...) == "t"
}

// run executes statements without a result.
func (x *exam) run(s *session, sql string) {
	if x.err != nil {
		return
	}
	if _, err := s.run(x.ctx, sql); err != nil {
		x.fail("%w", err)
	}
}

func (x *exam) try(s *session, k key) bool {
	return x.is(s, "pg_catalog.pg_try_advisory_lock("+k.args()+")")
}

func (x *exam) unlock(s *session, k key) bool {
	return x.is(s, "pg_catalog.pg_advisory_unlock("+k.args()+")")
}

// txTry takes a lock until the end of the transaction. Outside of a transaction, the lock is free again at once.
func (x *exam) txTry(s *session, k key) bool {
	return x.is(s, "pg_catalog.pg_try_advisory_xact_lock("+k.args()+")")
}

// until polls for an event, for as long as the event may take.
func (x *exam) until(happened func() bool) bool {
	for end := time.Now().Add(bound); x.err == nil; {
		switch {
		case happened():
			return x.err == nil
		case time.Now().After(end):
			return false
		}
		if pause.For(x.ctx, look) != nil {
			x.fail("%w", context.Cause(x.ctx))
		}
	}
	return false
}

// wait starts a goroutine that waits for a lock in the server's queue. The role's timeouts do not end the wait.
func (x *exam) wait(s *session, k key) *waiter {
	w := &waiter{session: s, done: make(chan struct{})}
	if x.err != nil {
		w.err = x.err
		close(w.done)
		return w
	}
	x.waits.Go(func() {
		defer close(w.done)
		_, w.err = s.runFor(x.ctx, "select pg_catalog.set_config('statement_timeout', '0', true), pg_catalog.set_config('lock_timeout', '0', true); "+
			"select pg_catalog.pg_advisory_lock("+k.args()+")")
	})
	return w
}

// queued waits until pg_locks shows the waiter in the queue, or the waiter gets an answer. It reports whether it waits.
func (x *exam) queued(by *session, w *waiter, k key) bool {
	seen := x.until(func() bool {
		return w.answered() || x.is(by, "pg_catalog.count(*) operator(pg_catalog.>) 0", "from pg_catalog.pg_locks where not granted and pid operator(pg_catalog.=)", fmt.Sprint(w.session.pid), "and", k.where())
	})
	switch {
	case x.err != nil:
	case !seen:
		x.fail("pg_locks did not show a waiter: %s", noAnswer)
	case w.answered() && w.err != nil:
		x.fail("the wait ended: %w", w.err)
	}
	return x.err == nil && !w.answered()
}

// receive returns the first waiter that gets an answer, or nil if none does in time.
func (x *exam) receive(waiters ...*waiter) (first *waiter) {
	x.until(func() bool {
		for _, w := range waiters {
			if w.answered() {
				first = w
				return true
			}
		}
		return false
	})
	if first == nil {
		x.fail("%w", errors.New(noAnswer))
	}
	return first
}
