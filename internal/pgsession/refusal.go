package pgsession

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// Refusal types the error of a connection, or of a statement, with which the server refuses this client: it
// answered, and a retry with the same settings gets the same answer. It returns nil for every other error,
// such as that of a server that starts, stops or has too many connections.
//
// If several hosts were tried, and one gave no answer, another host's refusal does not count: the silent one
// can be the primary, and come back.
func Refusal(err error) *session.RefusedError {
	if _, ok := errors.AsType[*session.BeforeConnectError](err); ok {
		return nil
	}
	attempts, config := []error{err}, (*pgconn.Config)(nil)
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		config, attempts[0] = connect.Config, connect.Unwrap()
		if joined, ok := attempts[0].(interface{ Unwrap() []error }); ok {
			attempts = joined.Unwrap()
		}
	}
	var last refused // pgx tries a host with TLS first, and then without
	other := false
	for _, attempt := range attempts {
		if r := refusalOf(attempt, config != nil); r.remedy != "" {
			last = r
		} else {
			other = true
		}
	}
	if last.remedy == "" || other && severalHosts(config) {
		return nil
	}
	return &session.RefusedError{Problem: last.text(config), Remedy: last.remedy, Cause: err}
}

// A refused is a refusal by a server, or by something that claims to be the server. Zero = none.
type refused struct{ problem, code, remedy string }

// refusalOf evaluates the error of a statement, or of one attempt to connect.
func refusalOf(attempt error, connecting bool) refused {
	if e, ok := errors.AsType[*pgconn.PgError](attempt); ok {
		remedy := remedyOf(e.Code)
		if connecting && raisedAtLogin(e) {
			remedy = "its login trigger does not let this role in: change that, or the role"
		}
		if remedy != "" {
			return refused{e.Message, e.Code, remedy}
		}
		return refused{}
	}
	if connecting && unverified(attempt) {
		return refused{
			problem: "the server's certificate cannot be verified: " + rootOf(attempt).Error(),
			remedy:  "check sslrootcert and the host name of the connection, and the server's certificate",
		}
	}
	return refused{}
}

// raisedAtLogin reports whether an event trigger on login (PostgreSQL 17) ended the connection: at that time
// no other function of the database is called. Some errors of such a function are temporary.
func raisedAtLogin(e *pgconn.PgError) bool {
	if e.SeverityUnlocalized != "FATAL" || e.Where == "" || len(e.Code) != 5 {
		return false
	}
	switch e.Code[:2] {
	case sqlstate.ClassConnection, sqlstate.ClassRollback, sqlstate.ClassResources, sqlstate.ClassIntervention,
		"25", // a standby, where the trigger wrote
		"55", // a lock
		"58", "XX":
		return false
	}
	return true
}

// unverified reports whether an attempt ended because this side does not trust the server's certificate.
func unverified(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	switch rootOf(err).(type) { //nolint:errorlint // it is the innermost one
	case x509.UnknownAuthorityError, x509.HostnameError, x509.CertificateInvalidError:
		return true
	}
	return false
}

// rootOf returns the innermost error.
func rootOf(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// remedyOf returns the remedy for a refusal; "" if the code is not a refusal. Codes: PostgreSQL manual,
// appendix A.
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

// text is the problem, with its code, and with the server if that is certain.
func (r refused) text(config *pgconn.Config) string {
	var facts []string
	if r.code != "" {
		facts = append(facts, "SQLSTATE "+r.code)
	}
	if config != nil && config.Host != "" && !severalHosts(config) {
		facts = append(facts, "PostgreSQL at "+net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	}
	if len(facts) == 0 {
		return r.problem
	}
	return fmt.Sprintf("%s (%s)", r.problem, strings.Join(facts, ", "))
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
