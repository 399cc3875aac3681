// Package pgdsn reads PostgreSQL connection strings, for everything that takes one.
package pgdsn

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Parse reads a URL or a list of keyword=value, as section 34.1.1 of the PostgreSQL
// manual describes them, with the PG* environment variables, service and password
// files that libpq reads. Settings of pgxpool (pool_max_conns and the like) must be
// valid and are left out, so that one string serves the pools of a program and
// pglatch.
//
// The error is an *Error. No error holds a part of the string, because a string that
// cannot be read does not tell which part of it is a password.
func Parse(dsn string) (*pgx.ConnConfig, error) {
	config, err := parsePool(dsn)
	if err != nil {
		return nil, err
	}
	return config.ConnConfig, nil
}

// parsePool is Parse for a pool, whose settings it keeps.
func parsePool(dsn string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, diagnose(dsn, err)
	}
	if problem := misreadError(dsn); problem != nil {
		return nil, problem
	}
	return config, nil
}

// OpenPool makes a pool, which does not connect yet. Unless the string sets default_query_exec_mode, no
// statement is prepared, so that it may lead through a transaction pooler. The error is as Parse's.
func OpenPool(dsn string) (*pgxpool.Pool, error) {
	config, err := parsePool(dsn)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(dsn, "default_query_exec_mode") {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// isURL tells the two forms apart as pgx and libpq do.
func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// diagnose says what is wrong with a string that pgx refused with err.
func diagnose(dsn string, err error) *Error {
	problem := settingError(dsn, err)
	switch {
	case problem != nil:
	case strings.ContainsRune(dsn, 0):
		problem = &Error{Problem: "a NUL byte", At: strings.IndexByte(dsn, 0) + 1}
	case isURL(dsn):
		problem = urlError(dsn)
	default:
		problem = keywordError(dsn)
	}
	return problem
}
