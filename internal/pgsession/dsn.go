package pgsession

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ParseDSN reads a PostgreSQL URL or keyword/value string. Its error never quotes
// it, because there may be a password in it.
func ParseDSN(dsn string) (*pgx.ConnConfig, error) {
	cc, err := pgx.ParseConfig(dsn)
	if err == nil {
		return cc, nil
	}
	if text := err.Error(); dsn != "" && strings.Contains(text, dsn) {
		err = errors.New(strings.ReplaceAll(text, dsn, "(connection string)"))
	}
	return nil, err
}
