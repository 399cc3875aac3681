package lockcmd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
)

// A victim is a session to terminate, and everything that ends with it.
type victim struct {
	PID             uint32             `json:"pid"`
	ApplicationName string             `json:"application_name"`
	User            string             `json:"user"`
	Database        string             `json:"database"`
	State           string             `json:"state"`
	Start           time.Time          `json:"backend_start"`
	Process         string             `json:"process,omitempty"`
	Loses           []loss             `json:"loses"`
	Terminated      bool               `json:"terminated"`
	process         *introspect.Answer // the process that owns the session
}

// A loss is a key that a session holds or waits for.
type loss struct {
	Key   string `json:"key"`
	Kind  string `json:"kind"` // "lock", "semaphore" or "election"
	Waits bool   `json:"waits,omitempty"`
	Label string `json:"label,omitempty"`
	For   string `json:"for,omitempty"` // for how long, as text
	Note  string `json:"note,omitempty"`
	// Next is the number of waiters.
	Next int `json:"waiters"`
}

// A termination is one use of the command terminate.
type termination struct {
	app             *program.App
	yes, force, dry bool
}

// NewTerminate returns the command terminate.
func NewTerminate(app *program.App) *cobra.Command {
	t := &termination{app: app}
	cmd := &cobra.Command{
		Use:        "terminate PID",
		Short:      "End a session of PostgreSQL, and all that it holds",
		SuggestFor: []string{"kill", "cancel"},
		Long: `End a session (pg_terminate_backend): all its locks are free then. First it says what
will be lost, by the processes' answers and pg_locks, and asks; without a terminal give --yes.

With --dry-run it only says it. It refuses a session that neither holds nor awaits an advisory lock, and belongs to no process that answers, and one on which a process answers, which holds no lock,
unless --force is given. A process whose session is ended learns of the loss within milliseconds;
one that is stopped learns of it when it goes on, and its work may go on until then.

Exit codes: 0 the session has ended, 3 there is none, 64 it was not confirmed or is refused,
77 the role may not (it must be the session's, or one of pg_signal_backend).`,
		Example: "  pglatch terminate 4711\n  pglatch terminate 4711 --dry-run\n  pglatch terminate 4711 --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil || pid == 0 {
				return program.UsageError("PID is %q: use the number of a session, as ls shows it", args[0])
			}
			return t.run(cmd.Context(), uint32(pid))
		},
	}
	cmd.Flags().BoolVarP(&t.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&t.dry, "dry-run", false, "say what would be lost, and end nothing")
	cmd.Flags().BoolVar(&t.force, "force", false, "also a session that has nothing to do with advisory locks")
	return cmd
}

func (t *termination) run(ctx context.Context, pid uint32) error {
	v, err := lookup.Once(ctx, t.app)
	if err != nil {
		return err
	}
	conn, err := t.app.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	s, err := findVictim(ctx, conn, pid)
	if err != nil {
		return err
	}
	s.learn(v)
	if len(s.Loses) == 0 && s.process == nil && !t.force {
		return program.UsageError("backend %d (%s) neither holds nor awaits an advisory lock of this database, and is no session of a process that answers: give --force to end it all the same",
			pid, program.Printable(s.ApplicationName))
	}
	if s.process != nil && s.process.Session == pid && len(s.Loses) == 0 && !t.force {
		return program.UsageError("backend %d is the session on which %s answers questions, and holds no lock: %s. Give --force to end it all the same", pid, s.Process, elsewhere(s.process))
	}
	if t.dry {
		return t.app.Print(program.Output{Document: s, Text: program.Text(s.text)})
	}
	if err := t.confirm(s); err != nil {
		return err
	}
	if err := s.terminate(ctx, conn); err != nil {
		return err
	}
	return t.app.Print(program.Output{Document: s, Text: func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "backend %d has ended\n", pid)
		return err
	}})
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
func findVictim(ctx context.Context, conn *pgx.Conn, pid uint32) (*victim, error) {
	s := &victim{PID: pid, Loses: []loss{}}
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
func (s *victim) learn(v lookup.View) {
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
		if a.Session == s.PID || s.Process == overview.ProcessName(a.Process) {
			s.process, s.Process = a, overview.ProcessName(a.Process)
		}
	}
}

func (s *victim) add(r *overview.Row, p overview.Party, waits bool) {
	if p.PID != s.PID {
		return
	}
	l := loss{Key: r.Text(), Kind: string(r.Kind), Waits: waits, Label: p.Label, Note: p.Note, For: p.Lasted()}
	if !waits {
		l.Next = len(r.Waiters)
	}
	s.Loses = append(s.Loses, l)
	if p.Process != nil {
		s.Process = overview.ProcessName(*p.Process)
	}
}

// text describes what will be lost.
func (s *victim) text(w *bytes.Buffer) {
	fmt.Fprintf(w, "backend %d (%s), user %s, %s, in a session since %s", s.PID, program.Printable(s.ApplicationName), program.Printable(s.User), s.State, s.Start.UTC().Format(time.RFC3339))
	if s.Process != "" {
		fmt.Fprintf(w, ", of %s", program.Printable(s.Process))
	}
	w.WriteString("\n")
	for _, l := range s.Loses {
		does := "holds"
		if l.Waits {
			does = "waits for"
		}
		fmt.Fprintf(w, "  %s %s (%s)", does, program.Printable(l.Key), l.Kind)
		for _, part := range []string{l.For, l.Label, l.Note} {
			if part != "" && part != "-" {
				fmt.Fprintf(w, ", %s", program.Printable(part))
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

// confirm shows what will be lost, and asks for confirmation.
func (t *termination) confirm(s *victim) error {
	var text bytes.Buffer
	s.text(&text)
	if t.yes {
		for line := range strings.Lines(text.String()) {
			t.app.Logger().Info("to be ended", slog.String("what", strings.TrimSpace(line)))
		}
		return nil
	}
	input, ok := t.app.Stdin.(*os.File)
	if !ok || !program.IsTerminal(input) {
		return program.UsageError("give --yes to end, without a terminal to ask on: %s", strings.ReplaceAll(strings.TrimSpace(text.String()), "\n", ";"))
	}
	_, _ = fmt.Fprintf(t.app.Stderr, "%sEnd this session, and all that it holds? Type %d: ", text.String(), s.PID)
	answer, _ := bufio.NewReader(input).ReadString('\n') // the text received so far is the answer
	if strings.TrimSpace(answer) != strconv.FormatUint(uint64(s.PID), 10) {
		return program.UsageError("backend %d was left alone", s.PID)
	}
	return nil
}

// terminate ends the session, if it is still the one that was shown, and waits for its end.
func (s *victim) terminate(ctx context.Context, conn *pgx.Conn) error {
	err := conn.QueryRow(ctx, `SELECT pg_catalog.pg_terminate_backend(pid, 5000) FROM pg_catalog.pg_stat_activity
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
