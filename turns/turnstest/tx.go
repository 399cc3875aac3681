package turnstest

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/txguard"
)

// A tx is a transaction. Its changes take effect when it commits, and until then it holds the locks on what it changes.
type tx struct {
	began      time.Time
	settings   map[string]string
	changes    []func() // in order; the server's mu is held
	sent       []*pending
	statements []Statement
	locks      []**tx
	waits      *tx // for the transaction that has a lock; nil = it does not wait
	savepoints []savepoint
}

// sentTo returns the messages that the transaction has sent to a mailbox.
func (t *tx) sentTo(b *box) (all []*pending) {
	for _, p := range t.sent {
		if p.box == b {
			all = append(all, p)
		}
	}
	return all
}

// A savepoint says which part of a transaction stays if the transaction is rolled back to it.
type savepoint struct {
	name                      string
	changes, sent, statements int
}

// lock waits until a lock is this transaction's, for a limited time; 0 = any. It reports whether it came in time. The
// caller holds mu, which lock gives up while it waits.
func (x *session) lock(of **tx, limit time.Duration) (bool, error) {
	s := x.server
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	for *of != nil && *of != x.tx {
		for other := *of; other != nil; other = other.waits {
			if other.waits == x.tx {
				return false, &failure{"40P01", "deadlock detected"}
			}
		}
		x.tx.waits = *of
		changed := s.changed
		s.mu.Unlock()
		var err error
		in := true
		select {
		case <-changed:
		case <-timeout:
			in = false
		case <-x.canceled:
			err = &failure{"57014", "canceling statement due to user request"}
		}
		s.mu.Lock()
		x.tx.waits = nil
		if err != nil || !in {
			return false, err
		}
	}
	if *of == nil {
		*of = x.tx
		x.tx.locks = append(x.tx.locks, of)
	}
	return true, nil
}

// finish ends the transaction, if one is open. The caller holds mu.
func (x *session) finish(commit bool) {
	if x.tx == nil {
		return
	}
	if commit {
		for _, change := range x.tx.changes {
			change()
		}
		x.server.statements = append(x.server.statements, x.tx.statements...)
	}
	for _, of := range x.tx.locks {
		*of = nil
	}
	x.tx, x.failed = nil, false
	x.server.broadcast()
}

var function = regexp.MustCompile(`pglatch_turns\.(\w+)\(`)

// run executes one statement.
func (x *session) run(sql string, args []*string) (*result, error) {
	s := x.server
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-x.canceled: // of an earlier statement
	default:
	}
	word, rest, _ := strings.Cut(strings.ToLower(strings.TrimRight(sql, "; ")), " ")
	switch word {
	case "commit":
		committed := !x.failed
		x.finish(committed)
		if !committed {
			return &result{tag: "ROLLBACK"}, nil
		}
		return &result{tag: "COMMIT"}, nil
	case "rollback":
		if strings.HasPrefix(rest, "to ") {
			return x.savepoint(word, rest[strings.LastIndex(rest, " ")+1:])
		}
		x.finish(false)
		return &result{tag: "ROLLBACK"}, nil
	}
	if x.failed {
		return nil, &failure{"25P02", "current transaction is aborted, commands ignored until end of transaction block"}
	}
	switch word {
	case "begin", "start":
		if x.tx == nil {
			x.tx = x.server.begin()
		}
		return &result{tag: "BEGIN"}, nil
	case "savepoint", "release":
		return x.savepoint(word, rest[strings.LastIndex(rest, " ")+1:])
	case "listen":
		x.listening[strings.ReplaceAll(strings.Trim(sql[len("listen "):], `" `), `""`, `"`)] = true
		return &result{tag: "LISTEN"}, nil
	}
	alone := x.tx == nil
	if alone {
		x.tx = s.begin()
	}
	r, err := x.statement(sql, args)
	if alone {
		x.finish(err == nil)
	}
	return r, err
}

func (s *Server) begin() *tx { return &tx{began: time.Now(), settings: map[string]string{}} }

func (x *session) savepoint(word, name string) (*result, error) {
	if x.tx == nil {
		return nil, &failure{"25P01", "there is no transaction in progress"}
	}
	t := x.tx
	if word == "savepoint" {
		t.savepoints = append(t.savepoints, savepoint{name, len(t.changes), len(t.sent), len(t.statements)})
		return &result{tag: "SAVEPOINT"}, nil
	}
	i := slices.IndexFunc(t.savepoints, func(p savepoint) bool { return p.name == name })
	if i < 0 {
		return nil, &failure{"3B001", "savepoint does not exist"}
	}
	p := t.savepoints[i]
	if word == "release" {
		t.savepoints = t.savepoints[:i]
		return &result{tag: "RELEASE"}, nil
	}
	t.changes, t.sent, t.statements, t.savepoints = t.changes[:p.changes], t.sent[:p.sent], t.statements[:p.statements], t.savepoints[:i+1]
	x.failed = false
	return &result{tag: "ROLLBACK"}, nil
}

// statement executes a statement in the session's transaction. The caller holds mu.
func (x *session) statement(sql string, args []*string) (*result, error) {
	called := function.FindStringSubmatch(sql)
	switch {
	case strings.Contains(sql, "'"+txguard.Refusal+"aborted'"):
		return nil, refused("aborted")
	case strings.Contains(sql, "int4in("):
		return x.guard(sql, args)
	case strings.Contains(sql, "pg_backend_pid(), ' '"):
		return x.outcomeOf()
	case strings.Contains(sql, "set_config('pglatch.outcome'") && called != nil:
		answer, err := x.call(called[1], args[1:])
		if err != nil {
			return nil, err
		}
		x.tx.settings["pglatch.outcome"] = *args[0] + string(textOf(answer.rows[0][0]))
		return one("value text", x.tx.settings["pglatch.outcome"]), nil
	case called != nil:
		return x.call(called[1], args)
	case strings.Contains(sql, "pglatch_turns.dead") && strings.Contains(sql, "ORDER BY number"):
		return x.deadLetters(args)
	case strings.Contains(sql, "pglatch_turns.nodes"):
		return x.stats(args)
	case strings.Contains(sql, "SELECT name, namespace FROM pglatch_turns.mailboxes"):
		return x.names(), nil
	case strings.Contains(sql, "schema_version FROM pglatch_turns.store"):
		return one("schema_version int4", 1<<30), nil
	case strings.Contains(sql, "'pglatch_turns' AND c.relname"):
		return one("there bool", true), nil
	case strings.Contains(sql, "pglatch_turns"):
		return nil, missing(sql)
	}
	x.tx.statements = append(x.tx.statements, Statement{sql, texts(args)})
	switch word := strings.ToUpper(strings.Fields(sql)[0]); word {
	case "INSERT":
		return &result{tag: "INSERT 0 1"}, nil
	case "UPDATE", "DELETE":
		return &result{tag: word + " 1"}, nil
	}
	return &result{columns: "nothing text"}, nil
}

func texts(args []*string) []string {
	all := make([]string, 0, len(args))
	for _, a := range args {
		if a == nil {
			all = append(all, "NULL")
		} else {
			all = append(all, *a)
		}
	}
	return all
}

// one is a result with one value.
func one(column string, value any) *result { return &result{columns: column, rows: [][]any{{value}}} }

func refused(reason string) error {
	return &failure{"22P02", `invalid input syntax for type integer: "` + reason + `"`}
}
