package program

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/namespace"
)

// The exit codes. Those from 64 to 78 are from sysexits.h, those from 125 from timeout(1).
const (
	ExitOK          = 0
	ExitFree        = 3   // status, ask: the lock has no holder; verdicts: something is wrong
	ExitUsage       = 64  // a flag, an argument or a setting
	ExitUnavailable = 69  // the database cannot be used, or a holder does not answer
	ExitInternal    = 70  // internal error, or a check of doctor failed
	ExitBusy        = 75  // held by another, or the wait timed out
	ExitLost        = 76  // lock or leadership lost; the child was stopped
	ExitRefused     = 77  // the database refuses the user, a lock server the token, or a holder the request: a retry does not help
	ExitFailure     = 125 // own failure before the child ran
	ExitSignal      = 128 // plus the number of the signal
)

// An ExitError is an error with its exit code. A nil Err, or one with an empty text, prints nothing.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// A SignalError is the cause of a context that a signal ended.
type SignalError struct{ Signal syscall.Signal }

func (e *SignalError) Error() string { return "ended by signal: " + e.Signal.String() }

// UsageError returns an error of the caller.
func UsageError(format string, args ...any) error {
	return &ExitError{ExitUsage, fmt.Errorf(format, args...)}
}

// Unavailable returns a database error, typed as a refusal if it is one, or the error of the signal that ended ctx
// meanwhile.
func Unavailable(ctx context.Context, err error) error {
	var ended *SignalError
	if err = interruption(ctx, err); err == nil || errors.As(err, &ended) {
		return err
	}
	if refused := pgsession.Refusal(err); refused != nil {
		return &ExitError{ExitRefused, refused}
	}
	if errors.Is(err, leasehttp.ErrDenied) {
		return &ExitError{ExitRefused, err}
	}
	return &ExitError{ExitUnavailable, err}
}

// exitCodes maps conditions to codes; the first match counts. A loss wraps the cause of the session's end, and a
// timeout the end of a context.
func exitCodes() []struct {
	err  error
	code int
} {
	return []struct {
		err  error
		code int
	}{
		{leasehttp.ErrDenied, ExitRefused},
		{advisory.ErrLost, ExitLost},
		{advisory.ErrHeld, ExitBusy},
		{advisory.ErrTimeout, ExitBusy},
		{advisory.ErrRefused, ExitRefused},
		{advisory.ErrUnavailable, ExitUnavailable},
		{advisory.ErrPooler, ExitUnavailable},
		{advisory.ErrStandby, ExitUnavailable},
		{advisory.ErrLockTableFull, ExitUnavailable},
		{leader.ErrLost, ExitLost},
		{leader.ErrConnection, ExitUnavailable},
		{leader.ErrGaveUp, ExitBusy},
		{namespace.ErrInvalidKey, ExitUsage},
		{namespace.ErrInvalidNamespace, ExitUsage},
		{namespace.ErrUnknownNamespace, ExitUsage},
		{namespace.ErrClash, ExitUsage},
	}
}

// Code returns the exit code of a command's error: that of an *ExitError in it, or of the condition that it matches, or
// 70.
func Code(err error) int {
	var (
		exit    *ExitError
		ended   *SignalError
		config  *advisory.ConfigError
		times   *leader.ConfigError
		connect *pgconn.ConnectError
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &ended):
		return ExitSignal + int(ended.Signal)
	case errors.As(err, &config), errors.As(err, &times):
		return ExitUsage
	}
	for _, c := range exitCodes() {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	switch {
	case pgsession.Refusal(err) != nil:
		return ExitRefused
	case errors.As(err, &connect):
		return ExitUnavailable
	}
	return ExitInternal
}

// message returns the printed text of an error. It begins with the cause, not with the operation that failed: the
// command names the operation.
func message(err error) string {
	if unreached, ok := errors.AsType[*unreachedError](err); ok {
		return unreached.Error()
	}
	if refused, ok := errors.AsType[*session.RefusedError](err); ok && Code(err) == ExitRefused {
		err = refused
	}
	text := OneLine(err.Error())
	if sqlstate.RefusesTransactions(err) && !strings.Contains(text, "pool_mode=session") {
		text += "; connect to PostgreSQL directly, or through a pool in session mode (PgBouncer: pool_mode=session)"
	}
	return text + advice(err)
}

// advice returns a remedy if a role's own settings disturb a statement; "" = none.
func advice(err error) string {
	switch sqlstate.Of(err) {
	case sqlstate.QueryCanceled:
		return ": the role's or the database's statement_timeout is too short, or somebody canceled the statement: ALTER ROLE ... SET statement_timeout = '30s', or use another role"
	case sqlstate.ReadOnly:
		return ": the role's or the database's default_transaction_read_only is on: ALTER ROLE ... RESET default_transaction_read_only, or use another role"
	}
	return ""
}

// interruption returns the error of the signal that ended ctx, if that caused err.
func interruption(ctx context.Context, err error) error {
	var ended *SignalError
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &ended) {
		return ended
	}
	return err
}
