package program

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/pgsession"
)

// ConnConfig returns the settings of connections to the database that the flags or
// the environment name; a copy. Errors are of usage and hold no password.
func (a *App) ConnConfig() (*pgx.ConnConfig, error) {
	if a.connConfig == nil {
		text, source, err := a.databaseURL()
		if err != nil {
			return nil, err
		}
		cc, err := parseDatabaseURL(text, source)
		if err != nil {
			return nil, err
		}
		cc.ConnectTimeout = cmp.Or(a.settings.connectTimeout, cc.ConnectTimeout, DefaultConnectTimeout)
		cc.RuntimeParams["application_name"] = cmp.Or(a.settings.applicationName, cc.RuntimeParams["application_name"], pgsession.ProcessName())
		a.redactor.hide(cc, text)
		a.connConfig = cc
	}
	return a.connConfig.Copy(), nil
}

// Connect connects to the database. The session makes no named statements, so that
// a pooler may stand between. A failure ends the program with 69, a refusal with 77.
func (a *App) Connect(ctx context.Context) (*pgx.Conn, error) {
	cc, err := a.ConnConfig()
	if err != nil {
		return nil, err
	}
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 0
	a.logger.Debug("connecting", slog.String("target", Target(cc)))
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return nil, Unavailable(ctx, err)
	}
	return conn, nil
}

// UseDatabase makes url, which the flag source gave, the database.
func (a *App) UseDatabase(url, source string) {
	a.settings.databaseURL, a.settings.databaseSource = url, source
}

// databaseURL returns what names the database, "" for the PG* variables alone, and
// where it was found.
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
		if text = a.Getenv(name); text != "" {
			return text, name, nil
		}
	}
	return "", "the PG* variables", nil
}

// parseDatabaseURL reads the text that was found in source. The error holds no part
// of it.
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
