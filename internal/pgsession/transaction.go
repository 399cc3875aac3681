package pgsession

import (
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pglatch/pglatch/internal/session"
)

// At the end of each transaction PostgreSQL walks all locks of the session
// (LockReleaseAll in its lock.c): some 50 µs with 1,000 of them, 7 ms with 10,000. A
// session that holds many therefore has the batches of a busy time share a transaction,
// which ends when the watch begins, with the last of many unlocks, and after longestTransaction.
// Session-level locks do not honor transactions: neither a COMMIT nor a ROLLBACK gives one
// back (PostgreSQL manual, section 13.3.5). Between two batches the transaction has no
// snapshot, so that it holds back neither VACUUM nor CREATE INDEX CONCURRENTLY, and the
// lease on the session goes on: idle_in_transaction_session_timeout is
// idle_session_timeout.
const (
	manyLocks          = 256
	longestTransaction = time.Second
)

// Of ReadyForQuery.
const (
	transactionOpen   = 'T'
	transactionFailed = 'E'
)

// shares reports whether the operations may leave a transaction open: not one that takes
// a turnstile, or looks at a view, which the transaction would keep until its end.
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

// enter begins what is sent with what makes the session's transaction fit for it.
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

// leave ends what is sent: with the transaction, or with a portal that has no snapshot.
func (s *Session) leave(b *batch, share bool) {
	switch {
	case b.leaves:
		s.put(b, part{statement: s.link.statements.commit}, nil)
	case share:
		s.link.conn.Frontend().SendClose(&pgproto3.Close{ObjectType: 'P'})
	}
}

// put adds one statement to what is sent.
func (s *Session) put(b *batch, p part, params [][]byte) {
	b.parts = append(b.parts, p)
	s.sendStatement(p.statement, params)
}

// endTransaction is for statements that are not for a transaction of many batches.
func (s *Session) endTransaction() error {
	if s.transaction != transactionOpen && s.transaction != transactionFailed {
		return nil
	}
	return s.ping()
}
