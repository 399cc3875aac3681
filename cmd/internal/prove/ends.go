package prove

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// frees waits until the lock of a session that ended is free.
func (x *exam) frees() bool {
	return x.until(x.free)
}

// free reports whether b can take the lock, and releases it.
func (x *exam) free() bool {
	return x.try(x.b, x.key) && x.unlock(x.b, x.key)
}

// gone reports whether the server shows no process of the session.
func (x *exam) gone(s *session) bool {
	return x.is(x.watch, "pg_catalog.count(*) operator(pg_catalog.=) 0", fmt.Sprintf("from pg_catalog.pg_stat_activity where pid operator(pg_catalog.=) %d", s.pid))
}

// holder starts a session that holds the lock.
func (x *exam) holder() *session {
	s := x.start()
	x.saw("held", x.try(s, x.key))
	x.saw("refused", !x.try(x.b, x.key))
	return s
}

func observeEnd(x *exam) {
	s := x.holder()
	s.close(x.ctx)
	if x.err != nil {
		return
	}
	switch {
	case x.frees():
		x.saw("freed", true)
	case x.gone(s): // the server frees the locks first
		x.saw("freed", x.free())
	case x.reused(s.pid):
		x.because("freed", false, "a pooler gave the session, with its lock, to another client: it needs a server_reset_query (DISCARD ALL)")
	default:
		x.fail("the server's process was still there: %s", noAnswer)
	}
}

// reused reports whether a pooler gives a session that still has the lock to another client. That client then releases the
// lock. pgpool-II keeps sessions in its processes, and chance decides which process a client reaches. So reused opens
// connections until one gets the session.
func (x *exam) reused(pid uint32) bool {
	return x.until(func() bool {
		s := x.start()
		defer s.close(x.ctx)
		return x.err == nil && s.pid == pid && x.unlock(s, x.key)
	})
}

// observeTerminated terminates a session. The statement begins with the function, and its argument is a constant.
// Otherwise pgpool-II would take the end of the session for a crash of the server, and fail over.
func observeTerminated(x *exam) {
	s := x.holder()
	defer s.close(x.ctx)
	if x.err != nil {
		return
	}
	row, err := x.watch.run(x.ctx, fmt.Sprintf("select pg_terminate_backend(%d)", s.pid))
	switch {
	case err != nil:
		x.fail("%w", err)
		return
	case len(row) != 1 || row[0] != "t":
		x.fail("pg_terminate_backend did not find the session")
		return
	}
	freed := x.frees()
	if gone := !freed && x.gone(s); gone {
		freed = x.free()
		x.saw("freed", freed)
	}
	if x.err != nil {
		return
	}
	_, err = s.ask(x.ctx, "1")
	x.saw("told", err != nil)
	switch {
	case freed:
		x.saw("freed", true)
	case err != nil:
		x.fail("the server's process was still there: %s", noAnswer)
	}
}

// set applies a setting, and reports whether the server accepts it.
func (x *exam) set(s *session, setting pgsession.Setting) bool {
	if x.err != nil {
		return false
	}
	_, err := s.ask(x.ctx, fmt.Sprintf("pg_catalog.set_config('%s', '%s', false)", setting.Name, setting.Value))
	if err != nil && !refuses(err) {
		x.fail("%w", err)
	}
	return err == nil
}

// refuses reports whether an error is the server's answer to a statement, and not the end of the session.
func refuses(err error) bool {
	code := sqlstate.Of(err)
	for _, class := range []string{sqlstate.ClassConnection, sqlstate.ClassResources, sqlstate.ClassIntervention, sqlstate.ClassInternal} {
		if strings.HasPrefix(code, class) {
			return false
		}
	}
	return code != ""
}

// leased sets the lease and takes the lock, in one statement. After it, the session is silent.
func (x *exam) leased(s *session) (held, set bool) {
	if x.err != nil {
		return false, false
	}
	row, err := s.ask(x.ctx, fmt.Sprintf("pg_catalog.set_config('idle_session_timeout', '%dms', false), "+
		"pg_catalog.current_setting('idle_session_timeout')::pg_catalog.interval operator(pg_catalog.=) '1s'::pg_catalog.interval, "+
		"pg_catalog.pg_try_advisory_lock(%s)", leaseTime.Milliseconds(), x.key.args()))
	switch {
	case err == nil && len(row) == 4:
		return row[2] == "t", row[1] == "t"
	case err == nil:
		err = errors.New("the server answered with another row")
	case refuses(err):
		return false, false
	}
	x.fail("%w", err)
	return false, false
}

// observeLease keeps a session silent for longer than its lease.
func observeLease(x *exam) {
	s := x.start()
	if x.err != nil {
		return
	}
	defer s.close(x.ctx)
	var refused []string
	for _, setting := range pgsession.Settings(leaseTime, "", 0) {
		if setting.Name == "idle_session_timeout" {
			continue // leased sets it last, because the time of slow answers must not count
		}
		if x.set(s, setting) {
			continue
		}
		if setting.Name == "idle_in_transaction_session_timeout" {
			x.because("set", false, "%s cannot be set: a holder that is cut off would keep its locks", setting.Name)
			return
		}
		refused = append(refused, setting.Name)
	}
	x.because("settings", refused == nil, "lock sessions without %s, which the server refuses", strings.Join(refused, ", "))
	sent := time.Now()
	held, set := x.leased(s)
	x.saw("set", set)
	if !set {
		return
	}
	x.saw("held", held)
	freed := x.frees()
	after := time.Since(sent)
	if x.err != nil {
		return
	}
	_, err := s.ask(x.ctx, "1")
	switch {
	case freed:
		x.because("late", after >= leaseTime, "the server ended the session after %v, before its lease of %v", round(after), leaseTime)
		x.saw("ended", true)
		x.saw("told", err != nil)
	case err == nil:
		x.saw("ended", false)
	default:
		x.fail("the session had ended, but its lock was not free: %s", noAnswer)
	}
}
