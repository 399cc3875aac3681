package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// ConnConfig returns a copy of the connection settings for the database that the flags or the environment name. Errors
// are usage errors and contain no password.
func (a *App) ConnConfig() (*pgx.ConnConfig, error) {
	if a.connConfig == nil {
		text, source, err := a.databaseURL()
		if err != nil {
			return nil, err
		}
		if a.connConfig, err = a.ConnConfigOf(text, source); err != nil {
			return nil, err
		}
	}
	return a.connConfig.Copy(), nil
}

// ConnConfigOf returns the connection settings for the database that text names, which comes from source.
func (a *App) ConnConfigOf(text, source string) (*pgx.ConnConfig, error) {
	cc, err := parseDatabaseURL(text, source)
	if err != nil {
		return nil, err
	}
	cc.ConnectTimeout = cmp.Or(a.settings.connectTimeout, cc.ConnectTimeout, DefaultConnectTimeout)
	cc.RuntimeParams["application_name"] = cmp.Or(a.settings.applicationName, cc.RuntimeParams["application_name"], pgsession.ProcessName())
	a.redactor.hide(cc, text)
	return cc, nil
}

// Connect connects to the database. The session creates no named statements, so that it works through a pooler. A
// failure ends the program with 69, a refusal with 77.
func (a *App) Connect(ctx context.Context) (*pgx.Conn, error) {
	cc, err := a.ConnConfig()
	if err != nil {
		return nil, err
	}
	a.logger.Debug("connecting", slog.String("target", Target(cc)))
	conn, err := pgx.ConnectConfig(ctx, Unprepared(cc))
	if err != nil {
		return nil, Unavailable(ctx, err)
	}
	return conn, nil
}

// NewPool returns a pool for the database of cc, which it changes. Its sessions are like those of Connect.
func NewPool(ctx context.Context, cc *pgx.ConnConfig, maxConns int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, UsageError("the PG* variables: %w", err)
	}
	config.ConnConfig, config.MinConns, config.MaxConns = Unprepared(cc), 0, maxConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, Unavailable(ctx, err)
	}
	return pool, nil
}

// Unprepared makes the sessions of cc leave no named statements on the server, and returns cc. They then work through a
// pooler that shares the server's sessions between clients.
func Unprepared(cc *pgx.ConnConfig) *pgx.ConnConfig {
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 0
	return cc
}

// UseDatabase selects the database url, which comes from the flag source.
func (a *App) UseDatabase(url, source string) {
	a.settings.databaseURL, a.settings.databaseSource = url, source
}

// databaseURL returns the text that names the database, "" for the PG* variables alone, and where it was found.
func (a *App) databaseURL() (text, source string, err error) {
	s := a.settings
	if s.databaseURL != "" {
		return s.databaseURL, cmp.Or(s.databaseSource, "--database-url"), nil
	}
	if s.databaseURLFile != "" {
		content, err := os.ReadFile(s.databaseURLFile)
		if err != nil {
			return "", "", UsageError("--database-url-file: %w", err)
		}
		if text = strings.TrimSpace(string(content)); text == "" {
			return "", "", UsageError("--database-url-file: %s is empty", s.databaseURLFile)
		}
		return text, "--database-url-file", nil
	}
	for _, name := range []string{"PGLATCH_DATABASE_URL", "DATABASE_URL", "PG_DSN"} {
		if text = os.Getenv(name); text != "" {
			return text, name, nil
		}
	}
	return "", "the PG* variables", nil
}

// named reports whether a flag or a variable names a database. If not, the local server is tried.
func (a *App) named() bool {
	text, _, err := a.databaseURL()
	return err != nil || text != "" || os.Getenv("PGHOST") != "" || os.Getenv("PGSERVICE") != ""
}

// TryUnnamed returns an error if no database is named, and the local server cannot be used. It is for commands that
// wait for a database: waiting would not supply a name.
func (a *App) TryUnnamed(ctx context.Context) error {
	if a.named() {
		return nil
	}
	conn, err := a.Connect(ctx)
	if err == nil {
		err = conn.Close(ctx)
	}
	return err
}

// ErrNoAnswer is the error if a command ran out of time for a connection.
var ErrNoAnswer = errors.New("PostgreSQL does not answer")

// unreached adds advice to the error of a failed connection: which of the settings that name the database to check, or
// which to set if none does.
func (a *App) unreached(err error) error {
	connect, failed := errors.AsType[*pgconn.ConnectError](err)
	silent := errors.Is(err, ErrNoAnswer)
	if !failed && !silent {
		return err
	}
	_, source, sourceErr := a.databaseURL()
	network, down := errors.AsType[net.Error](err)
	switch {
	case sourceErr != nil:
		return err
	case a.named() && (silent || down && sqlstate.Of(err) == ""):
		return &unreachedError{err, OneLine(err.Error()) + "; check " + source + ", and that PostgreSQL is up"}
	case a.named():
		return err
	}
	why := err
	switch refused := pgsession.Refusal(err); {
	case refused != nil:
		why = refused
	case down:
		why = network
	case failed:
		why = connect.Unwrap()
	}
	return &unreachedError{err, "no database is named: set DATABASE_URL, or --database-url, to its URL, such as postgres://user:password@host:5432/database, " +
		"or set the PG* variables (the local server was tried: " + OneLine(why.Error()) + ")"}
}

// An unreachedError adds advice to the error of a failed connection. It has the exit code of its cause.
type unreachedError struct {
	cause error
	text  string
}

func (e *unreachedError) Error() string { return e.text }

func (e *unreachedError) Unwrap() error { return e.cause }

// parseDatabaseURL parses the text from source. The error contains no part of it.
func parseDatabaseURL(text, source string) (*pgx.ConnConfig, error) {
	cc, err := pgdsn.Parse(text)
	if err != nil {
		return nil, UsageError("%s: %w; a connection string is postgres://user:password@host:port/database, the password percent-encoded, or host=… dbname=…", source, err)
	}
	return cc, nil
}

// Target names the database for people, without a password.
func Target(cc *pgx.ConnConfig) string {
	return fmt.Sprintf("database %q as user %q at %s:%d", cc.Database, cc.User, cc.Host, cc.Port)
}
