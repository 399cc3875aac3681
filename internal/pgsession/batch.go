package pgsession

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pglatch/pglatch/internal/session"
)

// A batch is a round trip for many operations. Operations of one shape are one statement, in which unlocks come before
// tries. One Sync ends the whole batch.
type batch struct {
	ops   []*session.Op
	kinds [len(shapes)]kind
	parts []part        // the statements that were sent, in order
	at    int           // the part whose answer is being read
	sent  time.Duration // boottime
	until time.Time     // when the session is given up

	leaves bool // the batch ends the transaction

	watched <-chan struct{} // set while nothing can be sent: closed when the watch has ended; nil = it was sent

	pid     uint32
	err     error // the first one from the server
	problem error // an answer that ends the session

	params [3][]byte
	arrays [3][]byte
}

// A kind is the operations of one shape: unlocks, then tries.
type kind struct {
	ops     []*session.Op
	unlocks int
}

// unnamed is a statement that is parsed for one batch.
var unnamed = &pgconn.StatementDescription{}

// A part is one statement of a batch.
type part struct {
	statement *pgconn.StatementDescription
	ops       []*session.Op  // empty for a statement without a row
	many      bool           // the keys are in arrays
	row       func([][]byte) // receives each row; nil = the row is the answer to ops
}

// Run is Do for callers that wait for the answer in any case.
func (s *Session) Run(ops ...*session.Op) error {
	err := s.Do(ops, s.from.config.statementBound())
	if errors.Is(err, session.ErrPending) {
		err = s.resume()
	}
	return err
}

// Do runs the operations in one round trip. Without operations it continues to wait for the answer. A ping of the watch
// is answered first.
func (s *Session) Do(ops []*session.Op, patience time.Duration) (err error) {
	switch {
	case len(ops) == 0:
		return s.resume()
	case ops[0].Wait != 0:
		return s.waitFor(ops[0])
	}
	if s.batch == nil {
		s.batch = &batch{}
	}
	s.batch.ops = append(s.batch.ops[:0], ops...)
	if watched := s.callOffWatch(); watched != nil && !closedWithin(patience, watched) {
		s.batch.watched = watched
		return session.ErrPending
	}
	return s.exchange(patience)
}

// resume waits for the answer to a pending batch.
func (s *Session) resume() error {
	b := s.batch
	if b.watched != nil {
		<-b.watched
		b.watched = nil
		return s.exchange(0)
	}
	return s.receiveAll()
}

// exchange sends the batch and waits for the answer: at most patience, if it is not 0.
func (s *Session) exchange(patience time.Duration) error {
	if lost := s.lost.Load(); lost != nil {
		return lost
	}
	b := s.batch
	if err := s.send(b, b.ops); err != nil {
		return s.lose(err)
	}
	if soon := time.Now().Add(patience); patience != 0 && soon.Before(b.until) {
		_ = s.link.conn.Conn().SetReadDeadline(soon)
		return s.receive(true)
	}
	return s.receiveAll()
}

// send sends the statements for the operations.
func (s *Session) send(b *batch, ops []*session.Op) error {
	b.sort(ops)
	b.parts = b.parts[:0]
	share, st := s.shares(ops), &s.link.statements
	s.enter(b, share)
	for i := range b.kinds {
		switch k := &b.kinds[i]; {
		case len(k.ops) == 0:
		case len(k.ops) > 1:
			s.put(b, part{statement: st.batch[i], ops: k.ops, many: true}, b.keys(k))
		case k.unlocks == 1:
			s.put(b, part{statement: st.unlock[i], ops: k.ops}, s.keyParams(k.ops[0].Tag))
		default:
			op := k.ops[0]
			s.put(b, part{statement: st.try[i], ops: k.ops}, s.tryParams(op.Tag, op.Mode, op.Turnstile))
		}
	}
	for _, op := range ops {
		if plain(op) {
			continue
		}
		p := part{ops: []*session.Op{op}}
		switch {
		case op.Ping:
			p.statement = st.ping
			s.put(b, p, nil)
		case op.Pass:
			p.statement = st.pass
			s.put(b, p, append(s.wire.params[:0], s.turnstileParam(op.Turnstile)))
		case op.Any != nil:
			p.statement = st.any
			s.put(b, p, b.anyKeys(op, s.turnstileParam(op.Turnstile)))
		default:
			p.statement = unnamed
			s.link.conn.Frontend().SendParse(&pgproto3.Parse{Query: sessionHolderSQL(op.Tag)})
			s.put(b, p, nil)
		}
	}
	s.leave(b, share)
	return s.dispatch(b, s.from.config.statementBound())
}

// sort groups the operations by their shapes, unlocks first, and clears their results.
func (b *batch) sort(ops []*session.Op) {
	for i := range b.kinds {
		clear(b.kinds[i].ops)
		b.kinds[i] = kind{ops: b.kinds[i].ops[:0]}
	}
	for _, op := range ops {
		op.Held, op.Index, op.Err = false, -1, nil
		if !plain(op) {
			continue
		}
		k := &b.kinds[shapeOf(op.Tag, op.Mode).index()]
		k.ops = append(k.ops, op)
		if op.Unlock {
			last := len(k.ops) - 1
			k.ops[last], k.ops[k.unlocks] = k.ops[k.unlocks], op
			k.unlocks++
		}
	}
}

// plain reports whether op is a try or an unlock of one tag, which can be grouped with others of its shape.
func plain(op *session.Op) bool {
	return op.Any == nil && !op.Ping && !op.Pass && op.Holder == nil
}

// dispatch sends the buffered statements as a batch, with bound as the limit for the answer.
func (s *Session) dispatch(b *batch, bound time.Duration) error {
	b.at, b.pid, b.err, b.problem = 0, s.link.pid, nil, nil
	now := time.Now()
	b.sent = s.from.clock.At(now)
	b.until = now.Add(s.within(bound, b.sent))
	return s.flush(b.sent)
}

// receiveAll waits for the answer until the session is given up.
func (s *Session) receiveAll() error {
	_ = s.link.conn.Conn().SetReadDeadline(s.batch.until)
	return s.receive(false)
}

// receive reads and completes the answer. If mayPend is set, it returns ErrPending at the read deadline.
func (s *Session) receive(mayPend bool) error {
	for {
		done, err := s.step(s.batch)
		switch {
		case mayPend && errors.Is(err, os.ErrDeadlineExceeded):
			return session.ErrPending
		case err != nil:
			return s.broken(s.batch, err)
		case done:
			return s.conclude()
		}
	}
}

// conclude evaluates the whole answer. After an error of the server it is unknown how far the server came.
func (s *Session) conclude() error {
	b := s.batch
	if err := s.judge(b); err != nil {
		if err = s.resolveBatch(err); err != nil {
			return err
		}
	}
	for _, op := range b.ops {
		switch {
		case op.Pass, op.Holder != nil:
		case op.Unlock:
			s.locks--
		case op.Held:
			s.locks++
		}
	}
	return nil
}

// waitFor is Wait for an operation. If the wait ended without a loss, the error belongs to the operation.
func (s *Session) waitFor(op *session.Op) (err error) {
	op.Held, op.Index, op.Err = false, -1, nil
	if op.Held, err = s.Wait(op.Tag, op.Mode, op.Wait); errors.Is(err, session.ErrLost) {
		return err
	}
	op.Err = err
	return nil
}

// closedWithin reports whether done is closed within patience.
func closedWithin(patience time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// drain reads the answer to a batch to its end, and evaluates it.
func (s *Session) drain(b *batch) error {
	s.readUntil(b.until)
	for {
		done, err := s.step(b)
		switch {
		case err != nil:
			return s.broken(b, err)
		case done:
			return s.judge(b)
		}
	}
}

// readUntil bounds the wait for an answer. When the watch is called off, before or after, the wait for a ping's answer
// is bounded further.
func (s *Session) readUntil(until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pingUntil.IsZero() && s.pingUntil.Before(until) {
		until = s.pingUntil
	}
	_ = s.link.conn.Conn().SetReadDeadline(until)
}

// step reads one message; done means that it was the last one.
func (s *Session) step(b *batch) (done bool, err error) {
	message, err := s.link.conn.Frontend().Receive()
	if err != nil {
		return false, err
	}
	switch message := message.(type) {
	case *pgproto3.DataRow:
		b.answer(message.Values)
	case *pgproto3.CommandComplete:
		b.at++
	case *pgproto3.ErrorResponse:
		b.err = pgconn.ErrorResponseToPgError(message)
	case *pgproto3.NotificationResponse:
		if notified := s.from.config.Notified; notified != nil {
			notified(message.PID, message.Payload)
		}
	case *pgproto3.ReadyForQuery:
		s.transaction = message.TxStatus
		return true, nil
	}
	return false, nil
}

var errRows = errors.New("BUG: a batch was not answered once for each key")

// answer records a row of the current part.
func (b *batch) answer(row [][]byte) {
	p := b.parts[b.at]
	pid := binary.BigEndian.Uint32(row[len(row)-1])
	if b.pid != pid {
		b.problem = fmt.Errorf("%w: backend %d answered instead of %d; %s", session.ErrPooler, pid, b.pid, proveIt)
		return
	}
	if p.row != nil {
		p.row(row)
		return
	}
	op := p.ops[0]
	switch {
	case op.Ping:
		return
	case op.Holder != nil:
		*op.Holder, op.Held = holderOfRow(row)
		return
	}
	if op.Any != nil {
		op.Index = int(binary.BigEndian.Uint64(row[0])) - 1
		op.Held = op.Index >= 0
		return
	}
	if !p.many {
		b.note(op, row[0][0] == 1)
		return
	}
	for _, op := range p.ops {
		op.Held = !op.Unlock
	}
	refused, ok := int8s(row[1])
	ok = ok && int(binary.BigEndian.Uint64(row[0])) == len(p.ops)
	rest := p.ops
	for key := range refused { // in the order of the operations
		for len(rest) > 0 && int8Of(rest[0].Tag) != key {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			ok = false
			break
		}
		b.note(rest[0], false)
		rest = rest[1:]
	}
	if !ok {
		b.problem = errRows
	}
}

// note records the answer to one operation. If a lock to release was not held, all other locks of the session are in
// doubt.
func (b *batch) note(op *session.Op, ok bool) {
	switch {
	case !op.Unlock:
		op.Held = ok
	case !ok:
		b.problem = session.ErrNotHeld
	}
}

// broken loses the session because of a connection error, or of the server's last message before it ended the session.
func (s *Session) broken(b *batch, err error) error {
	switch {
	case b.err != nil:
		err = b.err
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%w: %w", session.ErrSilent, err)
	}
	return s.lose(err)
}

// judge is settle for a batch.
func (s *Session) judge(b *batch) error {
	if b.problem != nil {
		return s.lose(b.problem)
	}
	return s.settle(b.sent, s.link.pid, b.err)
}
