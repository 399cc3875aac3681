package pgsession

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// A CycleStep is one process in a cycle of waits, in which each waits for the next.
type CycleStep struct {
	PID             uint32
	ApplicationName string
	Tag             namespace.Tag // the key that it waits for; not valid: it waits for something other than an advisory lock
}

// TxCycle evaluates a deadlock that PostgreSQL detected, by the detail of its error. It returns the
// cycle, whose first step is this transaction, or nil if it is not a real one. PostgreSQL treats a
// session as one party, but a Locker's connection can carry locks of callers other than the one
// that waits on it. A cycle through such a connection is not believed: one that blocks another by a
// lock that is not the turnstile of its own wait. A Locker's connection waits for a turnstile, or
// for the key of a turnstile that it has, and has no relation locked; a transaction that waits in
// TxWait has.
func TxCycle(ctx context.Context, tx Tx, detail string) ([]CycleStep, error) {
	waits := parseCycle(detail)
	pids := make([]uint32, len(waits))
	for i, w := range waits {
		pids[i] = w.pid
	}
	answer, err := TxAsk(ctx, tx, txCycleSQL, pidArray(pids))
	if err != nil {
		return nil, err
	}
	var rows []lockRow
	if err := json.Unmarshal([]byte(answer), &rows); err != nil {
		return nil, err
	}
	parties := make(map[uint32]*party, len(waits))
	for _, pid := range pids {
		parties[pid] = newParty()
	}
	for _, r := range rows {
		parties[r.PID].note(r)
	}
	return judgeCycle(waits, parties), nil
}

// txCycleSQL returns the locks of some sessions that TxCycle evaluates.
const txCycleSQL = `SELECT pg_catalog.set_config('pglatch.outcome', pg_catalog.concat($1::pg_catalog.text, (
	SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('pid', l.pid, 'name', a.application_name, 'relation', l.locktype OPERATOR(pg_catalog.=) 'relation',
		'class', coalesce(l.classid::pg_catalog.int8, 0), 'object', coalesce(l.objid::pg_catalog.int8, 0), 'form', coalesce(l.objsubid, 0))), '[]')
	FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
	WHERE l.pid OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.text::pg_catalog.int4[]) AND l.locktype OPERATOR(pg_catalog.=) ANY ('{advisory,relation}'::pg_catalog.text[]))), true)`

type lockRow struct {
	PID      uint32
	Name     string
	Relation bool
	Class    uint32
	Object   uint32
	Form     uint16
}

// A party is a session of a cycle, with the locks that it holds and waits for.
type party struct {
	name     string
	relation bool // it has a relation locked
	advisory map[namespace.Tag]bool
	gates    map[namespace.Tag]namespace.Tag // the keys, by their turnstiles
}

func newParty() *party {
	return &party{advisory: map[namespace.Tag]bool{}, gates: map[namespace.Tag]namespace.Tag{}}
}

func (p *party) note(r lockRow) {
	p.name = r.Name
	if r.Relation {
		p.relation = true
		return
	}
	tag := namespace.Tag{ClassID: r.Class, ObjID: r.Object, ObjSubID: r.Form}
	p.advisory[tag], p.gates[turnstile.Of(tag)] = true, tag
}

// A cycleWait is a line of the detail: a process waits for a lock.
type cycleWait struct {
	pid uint32
	tag namespace.Tag // not valid: not an advisory lock
}

var (
	advisoryLock = regexp.MustCompile(`\[\d+,(\d+),(\d+),(\d+)\]`)
	firstNumber  = regexp.MustCompile(`\d+`)
)

// parseCycle parses the detail, in which only the words depend on lc_messages: "Process 1 waits for
// ExclusiveLock on advisory lock [5,1,42,2]; blocked by process 2.", a line for each.
func parseCycle(detail string) (waits []cycleWait) {
	for line := range strings.Lines(detail) {
		w := cycleWait{pid: parsePID(firstNumber.FindString(line))}
		if m := advisoryLock.FindStringSubmatch(line); m != nil {
			class, _ := strconv.ParseUint(m[1], 10, 32)
			object, _ := strconv.ParseUint(m[2], 10, 32)
			form, _ := strconv.ParseUint(m[3], 10, 16)
			w.tag = namespace.Tag{ClassID: uint32(class), ObjID: uint32(object), ObjSubID: uint16(form)}
		}
		waits = append(waits, w)
	}
	return waits
}

// judgeCycle is TxCycle with the locks of the parties.
func judgeCycle(waits []cycleWait, parties map[uint32]*party) (steps []CycleStep) {
	for i, w := range waits {
		before, next := waits[(i+len(waits)-1)%len(waits)], waits[(i+1)%len(waits)]
		me, gate := parties[w.pid], turnstile.Of(w.tag)
		key, atTurnstile := parties[next.pid].gates[w.tag]
		if !atTurnstile {
			key = w.tag
		}
		locker := !me.relation && (atTurnstile || me.advisory[gate])
		if i > 0 && locker && before.tag != gate {
			return nil
		}
		steps = append(steps, CycleStep{PID: w.pid, ApplicationName: me.name, Tag: key})
	}
	return steps
}
