package pgsession

import (
	"encoding/binary"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/namespace"
)

// resolveBatch finds out, after an error, what the server did. Locks that a failed statement took
// stay held, and those that it released are gone. A try's result is whether its lock is held.
// Unfinished operations are repeated if the batch was only canceled; unlocks are repeated in any
// case. resolveBatch returns nil when every operation has its result.
func (s *Session) resolveBatch(err error) error {
	ops := s.batch.ops
	for attempt := range attempts {
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
			case op.Unlock, sqlstate.Of(err) == sqlstate.QueryCanceled && attempt < attempts-1:
				rest = append(rest, op)
			default:
				op.Err = typed(err)
			}
		}
		if len(rest) == 0 {
			return nil
		}
		if sendErr := s.send(s.batch, rest); sendErr != nil {
			return s.lose(sendErr)
		}
		if err = s.drain(s.batch); err == nil {
			return nil
		}
		ops = rest
	}
	return s.lose(err)
}

// An owned set is the locks that the session holds according to the server.
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
	for range attempts {
		own = make(owned)
		err = s.statement(s.link.statements.own, params, s.from.config.statementBound(), own.add)
		if sqlstate.Of(err) != sqlstate.QueryCanceled {
			break
		}
	}
	return own, err
}

// add records a row of ownSQL.
func (o owned) add(row [][]byte) {
	if row[0] == nil {
		return // none is held
	}
	key := ownedKey{tag: namespace.Tag{
		ClassID: binary.BigEndian.Uint32(row[0]), ObjID: binary.BigEndian.Uint32(row[1]), ObjSubID: binary.BigEndian.Uint16(row[2]),
	}}
	if row[3][0] == 1 {
		key.mode = session.Shared
	}
	o[key] = struct{}{}
}
