package lookup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
)

// A Victim is a session to terminate, and everything that ends with it.
type Victim struct {
	PID             uint32             `json:"pid"`
	ApplicationName string             `json:"application_name"`
	User            string             `json:"user"`
	Database        string             `json:"database"`
	State           string             `json:"state"`
	Start           time.Time          `json:"backend_start"`
	Process         string             `json:"process,omitempty"`
	Loses           []Loss             `json:"loses"`
	Terminated      bool               `json:"terminated"`
	process         *introspect.Answer // the process that owns the session
	owner           string             // the ID of that process; "" = unknown
}

// A Loss is a key that a session holds or waits for.
type Loss struct {
	Key   string `json:"key"`
	Kind  string `json:"kind"` // "lock", "semaphore" or "election"
	Waits bool   `json:"waits,omitempty"`
	Label string `json:"label,omitempty"`
	For   string `json:"for,omitempty"` // for how long, as text
	Note  string `json:"note,omitempty"`
	// Next is the number of waiters.
	Next int `json:"waiters"`
}

// Victim returns a session, and what ends with it.
func (l *Looker) Victim(ctx context.Context, pid uint32) (*Victim, error) {
	v, err := l.Look(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	s, err := findVictim(ctx, l.conn, pid)
	if err != nil {
		return nil, err
	}
	s.learn(v)
	return s, nil
}

// Related refuses a session that has nothing to do with advisory locks, and one that only answers questions.
func (s *Victim) Related() error {
	if len(s.Loses) == 0 && s.process == nil {
		return program.UsageError("backend %d (%s) neither holds nor awaits an advisory lock of this database, and is no session of a process that answers: give --force to end it all the same",
			s.PID, program.Printable(s.ApplicationName))
	}
	if s.process != nil && s.process.Session == s.PID && len(s.Loses) == 0 {
		return program.UsageError("backend %d is the session on which %s answers questions, and holds no lock: %s. Give --force to end it all the same", s.PID, s.Process, elsewhere(s.process))
	}
	return nil
}

// elsewhere names the sessions that hold a process's locks.
func elsewhere(a *introspect.Answer) string {
	var pids []string
	for i := range a.Locks {
		if pid := overview.PIDText(a.Locks[i].Session); !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return "the process has none"
	}
	return "those of the process are on backend " + strings.Join(pids, ", ")
}

// findVictim reads the session with this pid.
func findVictim(ctx context.Context, conn *pgx.Conn, pid uint32) (*Victim, error) {
	s := &Victim{PID: pid, Loses: []Loss{}}
	var start *time.Time
	err := conn.QueryRow(ctx, `SELECT coalesce(application_name, ''), coalesce(usename::pg_catalog.text, ''), coalesce(datname::pg_catalog.text, ''), coalesce(state, ''), backend_start
		FROM pg_catalog.pg_stat_activity WHERE pid OPERATOR(pg_catalog.=) $1::pg_catalog.int4`, int32(pid)).Scan(&s.ApplicationName, &s.User, &s.Database, &s.State, &start)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("there is no session %d", pid)}
	case err != nil:
		return nil, program.Unavailable(ctx, err)
	case start == nil:
		return nil, &program.ExitError{Code: program.ExitRefused, Err: fmt.Errorf(
			"PostgreSQL hides session %d from this role, which may not end it either: connect as its role, or one of pg_signal_backend and pg_read_all_stats", pid)}
	}
	s.Start = *start
	return s, nil
}

// learn copies a view's data about the session.
func (s *Victim) learn(v View) {
	for _, r := range v.Rows() {
		for _, p := range r.Holders {
			s.add(r, p, false)
		}
		for _, p := range r.Waiters {
			s.add(r, p, true)
		}
	}
	for i := range v.Answers.Answers {
		a := &v.Answers.Answers[i]
		if a.Session == s.PID || s.owner != "" && a.Process.ID == s.owner {
			s.process, s.Process = a, cmp.Or(s.Process, overview.ProcessName(a.Process))
		}
	}
}

func (s *Victim) add(r *overview.Row, p overview.Party, waits bool) {
	if p.PID != s.PID {
		return
	}
	l := Loss{Key: r.Text(), Kind: string(r.Kind), Waits: waits, Label: p.Label, Note: p.Note, For: p.Lasted()}
	if !waits {
		l.Next = len(r.Waiters)
	}
	s.Loses = append(s.Loses, l)
	if p.Process != nil {
		s.Process, s.owner = overview.ProcessName(*p.Process), p.Process.ID
	}
}

// Text describes what will be lost, on a terminal.
func (s *Victim) Text(w *bytes.Buffer) { s.Describe(w, program.Printable) }

// Describe describes what will be lost. quote makes text that others chose fit for where it is shown.
func (s *Victim) Describe(w *bytes.Buffer, quote func(string) string) {
	fmt.Fprintf(w, "backend %d (%s), user %s, %s, in a session since %s", s.PID, quote(s.ApplicationName), quote(s.User), s.State, s.Start.UTC().Format(time.RFC3339))
	if s.Process != "" {
		fmt.Fprintf(w, ", of %s", quote(s.Process))
	}
	w.WriteString("\n")
	for _, l := range s.Loses {
		does := "holds"
		if l.Waits {
			does = "waits for"
		}
		fmt.Fprintf(w, "  %s %s (%s)", does, quote(l.Key), l.Kind)
		for _, part := range []string{l.For, l.Label, l.Note} {
			if part != "" && part != "-" {
				fmt.Fprintf(w, ", %s", quote(part))
			}
		}
		if l.Next > 0 {
			fmt.Fprintf(w, "; %d wait for it", l.Next)
		}
		w.WriteString("\n")
	}
	if len(s.Loses) == 0 {
		w.WriteString("  no advisory lock of this database\n")
	}
}

// Terminate ends a session that Victim returned, if it is still the same one, and waits for its end.
func (l *Looker) Terminate(ctx context.Context, s *Victim) error {
	if err := l.connect(ctx); err != nil {
		return err
	}
	err := l.conn.QueryRow(ctx, `SELECT pg_catalog.pg_terminate_backend(pid, 5000) FROM pg_catalog.pg_stat_activity
		WHERE pid OPERATOR(pg_catalog.=) $1::pg_catalog.int4 AND backend_start OPERATOR(pg_catalog.=) $2::pg_catalog.timestamptz`, int32(s.PID), s.Start).Scan(&s.Terminated)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("session %d has ended meanwhile", s.PID)}
	case err != nil:
		return program.Unavailable(ctx, err)
	case !s.Terminated:
		return fmt.Errorf("backend %d was told to end, and has not within 5s", s.PID)
	}
	return nil
}

// Ended says that the session has ended.
func (s *Victim) Ended() string { return fmt.Sprintf("backend %d has ended", s.PID) }
