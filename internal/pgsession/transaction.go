package pgsession

import (
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pglatch/pglatch/internal/session"
)

// At the end of each transaction PostgreSQL walks all locks of the session (LockReleaseAll in its
// lock.c): some 50 µs with 1,000 of them, 7 ms with 10,000. In a session that holds many locks, the
// batches of a busy period therefore share a transaction. It ends when the watch begins, with the
// last of many unlocks, and after longestTransaction. Session-level locks do not honor
// transactions: neither a COMMIT nor a ROLLBACK releases one (PostgreSQL manual, section 13.3.5).
// Between two batches the transaction has no snapshot, so it blocks neither VACUUM nor CREATE INDEX
// CONCURRENTLY. The lease on the session continues: idle_in_transaction_session_timeout equals
// idle_session_timeout.
const (
	manyLocks          = 256
	longestTransaction = time.Second
)

// Transaction states in ReadyForQuery.
const (
	transactionOpen   = 'T'
	transactionFailed = 'E'
)

// shares reports whether the operations may leave a transaction open. An operation that takes a
// turnstile, or reads a view, may not: the transaction would keep these locks until its end.
func (s *Session) shares(ops []*session.Op) bool {
	left := s.locks
	if left < manyLocks {
		return false
	}
	for _, op := range ops {
		switch {
		case op.Turnstile.ObjSubID != 0, op.Holder != nil:
			return false
		case op.Unlock:
			left--
		}
	}
	return left >= manyLocks
}

// enter puts the statements in front that the session's transaction needs.
func (s *Session) enter(b *batch, share bool) {
	st, open := &s.link.statements, s.transaction == transactionOpen
	if s.transaction == transactionFailed || open && share && time.Since(s.begun) > longestTransaction {
		s.put(b, part{statement: st.commit}, nil)
		open = false
	}
	if share && !open {
		s.put(b, part{statement: st.begin}, nil)
		s.begun = time.Now()
	}
	b.leaves = open && !share
}

// leave ends the statements: with the transaction, or by closing the portal, which has a snapshot.
func (s *Session) leave(b *batch, share bool) {
	switch {
	case b.leaves:
		s.put(b, part{statement: s.link.statements.commit}, nil)
	case share:
		s.link.conn.Frontend().SendClose(&pgproto3.Close{ObjectType: 'P'})
	}
}

// put adds one statement to the buffer.
func (s *Session) put(b *batch, p part, params [][]byte) {
	b.parts = append(b.parts, p)
	s.sendStatement(p.statement, params)
}

// endTransaction prepares for statements that must not run in a transaction of many batches.
func (s *Session) endTransaction() error {
	if s.transaction != transactionOpen && s.transaction != transactionFailed {
		return nil
	}
	return s.ping()
}
