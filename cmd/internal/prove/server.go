package prove

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// What is between this program and the server.
const (
	nothing         = "no pooler"
	sessionMode     = "a pooler in session mode"
	transactionMode = "a pooler in transaction mode"
	statementMode   = "a pooler in statement mode"
)

const probes = 5 // rounds of the question whether sessions are shared

// identity changes when a server is restarted or promoted, and differs between servers.
const identity = "pg_catalog.pg_postmaster_start_time()::pg_catalog.text operator(pg_catalog.||) ' ' operator(pg_catalog.||) pg_catalog.pg_is_in_recovery()::pg_catalog.text"

func observeOneServer(x *exam) {
	a, b, watch := x.ask(x.a, identity), x.ask(x.b, identity), x.ask(x.watch, identity)
	x.saw("same", a == b && a == watch)
	if x.err == nil && a == b && a == watch {
		x.of.identity = a
	}
}

// doubtAnother makes all results unknown if the proofs ended on another server than they began. The results would mix two
// servers: a restart ends the locks that a proof looks for, and the clocks of two servers differ.
func (e *examiner) doubtAnother(ctx context.Context, results []Result) {
	if e.identity == "" {
		return
	}
	now, err := e.ask(ctx, identity)
	for i := range results {
		switch r := &results[i]; {
		case err != nil && r.Proof == oneServer:
			r.Status, r.Why = Unknown, fmt.Sprintf("the server does not answer after the proofs (%v): prove again", err)
		case err == nil && now != e.identity:
			r.Status, r.Why = Unknown, "the server was restarted or promoted meanwhile, or another one took its place: prove again"
		}
	}
}

// ask asks the server that a connection reaches now.
func (e *examiner) ask(ctx context.Context, list string) (string, error) {
	s := e.sessions[0]
	if s == nil || s.conn.IsClosed() {
		var err error
		if s, err = e.open(ctx); err != nil {
			return "", err
		}
		e.sessions[0] = s
	}
	row, err := s.ask(ctx, list)
	if err != nil {
		return "", err
	}
	return row[0], nil
}

func observePrimary(x *exam) {
	x.saw("primary", !x.is(x.a, "pg_catalog.pg_is_in_recovery()"))
	x.saw("writes", x.ask(x.a, "pg_catalog.current_setting('transaction_read_only')") == "off")
	if x.err != nil {
		return
	}
	row, err := x.a.ask(x.ctx, "pg_catalog.count(subname)", "from pg_catalog.pg_subscription")
	if err == nil { // otherwise the server has no logical replication, or the role may not read the table
		x.saw("independent", row[0] == "0")
	}
}

// observePooler compares the pids of two sessions while one of them is inside a transaction, which keeps its server process
// busy.
func observePooler(x *exam) {
	pid := func(s *session) string { return x.ask(s, "pg_catalog.pg_backend_pid()") }
	shared := false
	for range probes {
		before := pid(x.a)
		if !x.begin(x.b) {
			return
		}
		other := pid(x.b)
		shared = other == before || pid(x.a) != before // if they are the same, a would now wait for b
		x.run(x.b, "rollback")
		if shared || x.err != nil {
			break
		}
	}
	if x.err != nil {
		return
	}
	x.saw("apart", !shared)
	direct := x.a.pid == x.a.conn.PID()
	x.saw("direct", direct || shared)
	switch {
	case shared:
		x.of.shared, x.of.between = true, transactionMode
	case direct:
		x.of.between = nothing
	default:
		x.of.between = sessionMode
	}
}

// begin begins a transaction. It returns false if the pooler refuses transactions, or no answer came.
func (x *exam) begin(s *session) bool {
	if x.err != nil {
		return false
	}
	_, err := s.run(x.ctx, "begin")
	switch {
	case err == nil:
		x.saw("transactions", true)
		return true
	case sqlstate.RefusesTransactions(err):
		x.of.shared, x.of.between = true, statementMode
		x.saw("apart", false)
		x.saw("transactions", false)
	}
	x.fail("%w", err)
	return false
}

// observePID runs last, after the pid of every answer of every session was compared.
func observePID(x *exam) {
	if x.err != nil {
		return
	}
	x.saw("different", x.a.pid != x.b.pid && x.a.pid != x.watch.pid && x.b.pid != x.watch.pid)
	x.saw("visible", x.ask(x.watch, "pg_catalog.count(*)", "from pg_catalog.pg_stat_activity where pid operator(pg_catalog.=)", strconv.Itoa(int(x.a.pid))) == "1")
	x.saw("stable", !x.of.moved.Load())
}

// readClock reads the server's clock, once in each proof.
func (x *exam) readClock() {
	r := reading{sent: time.Now()}
	text := x.ask(x.a, "(pg_catalog.date_part('epoch', pg_catalog.now()) operator(pg_catalog.*) 1000000)::pg_catalog.int8")
	r.received = time.Now()
	micros, err := strconv.ParseInt(text, 10, 64)
	if x.err != nil || err != nil {
		return
	}
	r.server = time.Duration(micros) * time.Microsecond
	x.of.readings = append(x.of.readings, r)
}

func observeClock(x *exam) {
	x.readClock()
	x.readClock()
	if x.err != nil || len(x.of.readings) < 2 {
		return
	}
	steady, near, step, off := judgeClock(x.of.readings)
	x.because("steady", steady, "%s", step)
	x.because("near", near, "%s", off)
}
