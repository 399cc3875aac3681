package pgsession

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A wire holds the buffers with which a session speaks the protocol itself, while pgconn is unused.
// That costs less. Also, pgx closes the connection when a read times out, but here one goroutine
// after another can wait for the answer to a batch.
type wire struct {
	bind    pgproto3.Bind
	execute pgproto3.Execute
	key     [8]byte // the parameters of the statement for one key
	gate    [8]byte
	params  [3][]byte
	// writeBy is the boottime of the socket's write deadline that extend has set: one to two
	// statement bounds away. 0 = another deadline is set.
	writeBy atomic.Int64
}

var binaryFormat = []int16{1} // of all parameters, or of all columns

// sendStatement puts a prepared statement into the send buffer.
func (s *Session) sendStatement(st *pgconn.StatementDescription, params [][]byte) {
	b, f := &s.wire.bind, s.link.conn.Frontend()
	b.PreparedStatement, b.Parameters = st.Name, params
	b.ParameterFormatCodes, b.ResultFormatCodes = binaryFormat, binaryFormat
	f.SendBind(b)
	f.SendExecute(&s.wire.execute)
}

// flush sends the buffer, as one transaction.
func (s *Session) flush(sent time.Duration) error {
	f := s.link.conn.Frontend()
	f.SendSync(&pgproto3.Sync{})
	s.extend(sent)
	return f.Flush()
}

// extend bounds the next writes. It does not set the deadline each time: that would cost more than
// most of the other work here.
func (s *Session) extend(now time.Duration) {
	bound := s.from.config.statementBound()
	if s.wire.writeBy.Load() >= int64(now+bound) {
		return
	}
	s.mu.Lock() // a Hurry comes before or after
	defer s.mu.Unlock()
	_ = s.link.conn.Conn().SetWriteDeadline(time.Now().Add(2 * bound))
	s.wire.writeBy.Store(int64(now + 2*bound))
}

// statement runs one prepared statement to its end and calls row for each row.
func (s *Session) statement(st *pgconn.StatementDescription, params [][]byte, bound time.Duration, row func([][]byte)) error {
	if lost := s.lost.Load(); lost != nil {
		return lost
	}
	b := &batch{}
	s.enter(b, false)
	s.put(b, part{statement: st, row: row}, params)
	s.leave(b, false)
	if err := s.dispatch(b, bound); err != nil {
		return s.lose(err)
	}
	return s.drain(b)
}

// setDeadline bounds the I/O that follows; zero lifts the bound.
func (s *Session) setDeadline(bound time.Duration) {
	var t time.Time
	if bound != 0 {
		t = time.Now().Add(bound)
	}
	s.wire.writeBy.Store(0)
	// An error means that the socket is closed, which the next I/O reports.
	_ = s.link.conn.Conn().SetDeadline(t)
}

// tryParams returns the keyParams of a try, plus its turnstile in shared mode.
func (s *Session) tryParams(tag namespace.Tag, mode session.Mode, turnstile namespace.Tag) [][]byte {
	params := s.keyParams(tag)
	if mode == session.Shared {
		params = append(params, s.turnstileParam(turnstile)) // there is room
	}
	return params
}

// keyParams returns a tag's parameters, valid until the next call: its halves are int4, or together
// one int8.
func (s *Session) keyParams(tag namespace.Tag) [][]byte {
	b, params := s.wire.key[:], &s.wire.params
	binary.BigEndian.PutUint32(b, tag.ClassID)
	binary.BigEndian.PutUint32(b[4:], tag.ObjID)
	if tag.ObjSubID == namespace.PairForm {
		params[0], params[1] = b[:4], b[4:]
		return params[:2]
	}
	params[0] = b
	return params[:1]
}

func (s *Session) turnstileParam(turnstile namespace.Tag) []byte {
	binary.BigEndian.PutUint32(s.wire.gate[:], turnstile.ClassID)
	binary.BigEndian.PutUint32(s.wire.gate[4:], turnstile.ObjID)
	return s.wire.gate[:]
}
