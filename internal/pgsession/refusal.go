package pgsession

import (
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// Refusal types an error of a connection, or of a statement, with which the server
// refuses this client: it answered, and another try with the same settings gets the
// same answer. It is nil for every other error, such as that of a server that
// starts, stops or has too many connections.
//
// Of several hosts that were tried, one that refuses is no refusal if another gave
// no answer: that one can be the primary, and come back.
func Refusal(err error) *session.RefusedError {
	attempts, config := []error{err}, (*pgconn.Config)(nil)
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		config, attempts[0] = connect.Config, connect.Unwrap()
		if joined, ok := attempts[0].(interface{ Unwrap() []error }); ok {
			attempts = joined.Unwrap()
		}
	}
	var refusal *pgconn.PgError // the last: pgx tries a host with TLS first, and then without
	other := false
	for _, attempt := range attempts {
		if e, ok := errors.AsType[*pgconn.PgError](attempt); ok && remedyOf(e.Code) != "" {
			refusal = e
		} else {
			other = true
		}
	}
	if refusal == nil || other && severalHosts(config) {
		return nil
	}
	return &session.RefusedError{Problem: problemOf(refusal, config), Remedy: remedyOf(refusal.Code), Cause: err}
}

// remedyOf says what helps against a refusal; "" if the code is none. Codes:
// PostgreSQL manual, appendix A.
func remedyOf(code string) string {
	switch code {
	case sqlstate.InvalidPassword:
		return "check the user and the password"
	case sqlstate.InvalidAuthorization: // no such role, no right to log in, no line in pg_hba.conf
		return "check the user, its right to log in, and the server's pg_hba.conf"
	case sqlstate.InvalidCatalog:
		return "create the database, or connect to another"
	case sqlstate.Privilege:
		return "GRANT the role what it lacks"
	}
	return ""
}

// problemOf is the server's own words, and which server it is if that is sure.
func problemOf(e *pgconn.PgError, config *pgconn.Config) string {
	if config == nil || config.Host == "" || severalHosts(config) {
		return fmt.Sprintf("%s (SQLSTATE %s)", e.Message, e.Code)
	}
	server := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	return fmt.Sprintf("%s (SQLSTATE %s, PostgreSQL at %s)", e.Message, e.Code, server)
}

func severalHosts(config *pgconn.Config) bool {
	if config == nil {
		return false
	}
	for _, f := range config.Fallbacks {
		if f.Host != config.Host || f.Port != config.Port {
			return true
		}
	}
	return false
}
