package pgsession

import (
	"context"
	"encoding/binary"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// batchAttempts is attempts for a session that others depend on.
const batchAttempts = 20

// resolveBatch finds out, after an error, what the server did: locks that a failed
// statement took stay held, and those that it gave back are gone. What is held is
// the answer to a try; what was not done is done again if the batch was only
// canceled, and unlocks in any case. It returns nil when every operation has its
// result.
func (s *Session) resolveBatch(err error) error {
	ops := s.batch.ops
	for attempt := range batchAttempts {
		if lost := s.lost.Load(); lost != nil {
			return lost
		}
		own, ownErr := s.own(ops)
		if ownErr != nil {
			return s.lose(err)
		}
		var rest []*session.Op
		for _, op := range ops {
			asks := op.Pass || op.Holder != nil
			held := !asks && own.find(op)
			switch {
			case op.Ping, op.Unlock && !held, !op.Unlock && held:
				// done
			case asks:
				op.Held, op.Err = false, err // it can be asked again
			case op.Unlock, sqlState(err) == codeQueryCanceled && attempt < batchAttempts-1:
				rest = append(rest, op)
			case sqlState(err) == codeOutOfMemory:
				op.Err = lockTableFull(err)
			default:
				op.Err = err
			}
		}
		if len(rest) == 0 {
			return nil
		}
		if err = s.again(rest); err == nil {
			return nil
		}
		ops = rest
	}
	return s.lose(err)
}

// again is a batch inside a batch, which waits for its answer.
func (s *Session) again(ops []*session.Op) error {
	if err := s.send(ops); err != nil {
		return s.lose(err)
	}
	_ = s.link.conn.Conn().SetReadDeadline(s.batch.until)
	for {
		done, err := s.step()
		switch {
		case err != nil:
			return s.broken(err)
		case done:
			return s.judge()
		}
	}
}

// An owned set is what the server says that the session holds.
type owned map[ownedKey]struct{}

type ownedKey struct {
	tag  namespace.Tag
	mode session.Mode
}

// find reports whether an operation's lock is held, and which one of Any.
func (o owned) find(op *session.Op) bool {
	op.Held = false
	for i, tag := range op.Any {
		if _, ok := o[ownedKey{tag, session.Exclusive}]; ok {
			op.Held, op.Index = true, i
			return true
		}
	}
	if op.Any == nil {
		_, ok := o[ownedKey{op.Tag, op.Mode}]
		op.Held = ok && !op.Unlock
		return ok
	}
	return false
}

// own asks the server which of the operations' locks the session holds.
func (s *Session) own(ops []*session.Op) (own owned, err error) {
	var objids []uint32
	for _, op := range ops {
		objids = append(objids, op.Tag.ObjID)
		for _, tag := range op.Any {
			objids = append(objids, tag.ObjID)
		}
	}
	params := [][]byte{oidArray(objids)}
	for range batchAttempts {
		sent := boottime.Now()
		s.setDeadline(s.within(s.from.config.statementBound(), sent))
		own = make(owned)
		pid := uint32(0)
		result := s.link.conn.ExecStatement(context.Background(), s.link.statements.own, params, binaryFormat, binaryFormat)
		for result.NextRow() {
			row := result.Values()
			pid = binary.BigEndian.Uint32(row[4])
			if row[0] == nil {
				continue
			}
			key := ownedKey{tag: namespace.Tag{
				ClassID: binary.BigEndian.Uint32(row[0]), ObjID: binary.BigEndian.Uint32(row[1]), ObjSubID: binary.BigEndian.Uint16(row[2]),
			}}
			if row[3][0] == 1 {
				key.mode = session.Shared
			}
			own[key] = struct{}{}
		}
		_, err = result.Close()
		if err = s.settle(sent, pid, err); sqlState(err) != codeQueryCanceled {
			break
		}
	}
	return own, err
}
