// Package doctorcmd contains the command doctor.
package doctorcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/session"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/program"
)

// A severity is doctor's rating of one check.
type severity string

const (
	ok   severity = "ok"
	warn severity = "warn"
	fail severity = "fail"
)

// A check is one line of doctor.
type check struct {
	Check  string   `json:"check"`
	Status severity `json:"status"`
	Detail string   `json:"detail"`
}

// An examination examines one server.
type examination struct {
	app    *program.App
	conn   *pgx.Conn
	ttl    time.Duration // T
	step   time.Duration // a waiter's wait step in the server's queue
	checks []check
}

func (e *examination) note(name string, status severity, format string, args ...any) {
	e.checks = append(e.checks, check{name, status, program.OneLine(fmt.Sprintf(format, args...))})
}

// New returns the command doctor.
func New(app *program.App) *cobra.Command {
	e := &examination{app: app}
	var p prover
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether a database is fit for advisory locks",
		Long: `Check whether a database is fit for advisory locks: its version, whether it is a standby or
behind a transaction pooler, what the role is allowed to see, how full the lock table is,
which settings lock sessions can change, what the operating system of pglatch lacks, and how
long a fail-over takes at worst. It changes nothing. The exit code is 69 if the database
cannot be reached, 77 if it refuses the user, 70 if a check fails, and 0 otherwise, even
with warnings.

With --prove it tries on the server what pglatch relies on: exclusion, queues, unlocks,
ends of sessions, leases, cancel requests, notifications, transactions and the clock. That
takes 20 seconds at most, and leaves nothing behind. A DSN may follow. For each part of
pglatch it reports whether it may be used there. The exit code is 70 if a part of --parts
must not be used, and 75 if that is not known because an answer is missing.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if p.on {
				return cobra.MaximumNArgs(1)(cmd, args)
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case p.on:
				return p.run(cmd.Context(), app, args)
			case p.parts != nil:
				return program.UsageError("--parts is for --prove")
			}
			return e.run(cmd.Context())
		},
	}
	p.addFlags(cmd)
	cmd.Flags().DurationVar(&e.ttl, "session-ttl", session.DefaultTTL, "the program's SessionTTL, for the arithmetic")
	return cmd
}

func (e *examination) run(ctx context.Context) error {
	if e.ttl < session.MinTTL || e.ttl > session.MaxTTL {
		return program.UsageError("--session-ttl is %v: use 500ms to 24h", e.ttl)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("doctor gave up after a minute"))
	defer cancel()
	var err error
	if e.conn, err = e.app.Connect(ctx); err != nil {
		return err
	}
	defer func() { _ = e.conn.Close(context.WithoutCancel(ctx)) }()
	cc := e.conn.Config()
	e.note("connection", ok, "%s", program.Target(cc))
	for _, examine := range []func(context.Context) error{
		e.version,
		e.whether("primary", `SELECT NOT pg_catalog.pg_is_in_recovery()`, "not a standby",
			fail, "a standby has a lock space of its own and would grant a key twice: connect to the primary"),
		e.sessions,
		e.whether("plpgsql", `SELECT EXISTS (SELECT FROM pg_catalog.pg_language WHERE lanname OPERATOR(pg_catalog.=) 'plpgsql' AND pg_catalog.has_language_privilege(oid, 'USAGE'))`,
			"present, and the role may use it", fail, "waiting needs it: CREATE EXTENSION plpgsql, or GRANT USAGE ON LANGUAGE plpgsql"),
		e.whether("rights", `SELECT pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')`,
			"the role sees the state of all sessions (pg_read_all_stats)",
			warn, "the role sees state, session start and address of its own sessions only: GRANT pg_read_all_stats (or pg_monitor) TO it; locking works without this right"),
		e.lockTable, e.connections, e.sessionSettings, e.deadlockTimeout,
	} {
		if err := examine(ctx); err != nil {
			return program.Unavailable(ctx, err)
		}
	}
	e.platform()
	e.failOver()
	return e.print()
}

func (e *examination) print() error {
	failed := 0
	for _, c := range e.checks {
		if c.Status == fail {
			failed++
		}
	}
	document := struct {
		OK     bool    `json:"ok"`
		Checks []check `json:"checks"`
	}{failed == 0, e.checks}
	err := e.app.Print(program.Output{Document: document, Lines: program.Lines(e.checks), Text: e.text})
	if err == nil && failed > 0 {
		err = &program.ExitError{Code: program.ExitInternal, Err: fmt.Errorf("%d of %d checks failed", failed, len(e.checks))}
	}
	return err
}

func (e *examination) text(w *bytes.Buffer) {
	colors := map[severity]string{ok: program.Green, warn: program.Yellow, fail: program.Red}
	for _, c := range e.checks {
		status := e.app.Paint(colors[c.Status], string(c.Status)) + strings.Repeat(" ", 6-len(c.Status))
		fmt.Fprintf(w, "%s%-18s%s\n", status, c.Check, program.Printable(c.Detail))
	}
}

// ask scans the one row of a statement. Each name in it has its schema, because the search_path is the role's, and a pooler that shares
// sessions would pass a changed one on.
func (e *examination) ask(ctx context.Context, sql string, to ...any) error {
	return e.conn.QueryRow(ctx, sql).Scan(to...)
}

func (e *examination) version(ctx context.Context) error {
	var number int
	var version string
	if err := e.ask(ctx, `SELECT pg_catalog.current_setting('server_version_num')::int, pg_catalog.current_setting('server_version')`, &number, &version); err != nil {
		return err
	}
	switch major := number / 10000; {
	case major < 14:
		e.note("version", fail, "PostgreSQL %s: pglatch needs 14 or later (idle_session_timeout)", version)
	case major > 18:
		e.note("version", warn, "PostgreSQL %s: tested with 14 to 18", version)
	default:
		e.note("version", ok, "PostgreSQL %s", version)
	}
	return nil
}

// sessions opens a Locker, to find problems of lock sessions.
func (e *examination) sessions(ctx context.Context) error {
	cc, err := e.app.ConnConfig()
	if err != nil {
		return err
	}
	locker, err := advisory.Open(ctx, advisory.Config{ConnConfig: cc, MaxConns: 1, SessionTTL: e.ttl, ApplicationName: "pglatch-doctor"})
	if err == nil {
		locker.Close()
	}
	var pgErr *pgconn.PgError
	var pid uint32
	switch {
	case errors.Is(err, advisory.ErrStandby):
		e.note("lock sessions", fail, "not opened: a standby")
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, advisory.ErrPooler), errors.As(err, &pgErr), errors.Is(err, advisory.ErrUnavailable), errors.Is(err, advisory.ErrRefused):
		e.note("lock sessions", fail, "%v", err)
	case err != nil:
		return err
	default:
		if err := e.ask(ctx, `SELECT pg_catalog.pg_backend_pid()`, &pid); err != nil {
			return err
		}
		if pid != e.conn.PgConn().PID() {
			e.note("lock sessions", ok, "through a pooler that keeps sessions apart: its pool_size must be at least the lock connections of all replicas")
		} else {
			e.note("lock sessions", ok, "no pooler between")
		}
	}
	return nil
}

// whether asks a question, whose good answer is true. bad is the rating of the other one.
func (e *examination) whether(name, sql, good string, bad severity, otherwise string) func(context.Context) error {
	return func(ctx context.Context) error {
		var yes bool
		err := e.ask(ctx, sql, &yes)
		switch {
		case err != nil:
			return err
		case yes:
			e.note(name, ok, "%s", good)
		default:
			e.note(name, bad, "%s", otherwise)
		}
		return nil
	}
}
