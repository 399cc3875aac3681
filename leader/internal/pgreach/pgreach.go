// Package pgreach is what elections and shards on PostgreSQL share: it checks arguments, and converts errors of
// sessions.
package pgreach

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/leader/driver"
)

// Unreachable makes an error of a connection match driver.ErrConnection. If the error persists until somebody
// changes something, it also matches driver.ErrPermanent. Its text does not change.
func Unreachable(err error) error {
	if errors.Is(err, session.ErrUnavailable) || errors.Is(err, session.ErrRefused) || errors.Is(err, session.ErrLost) {
		err = Connection(err)
	}
	if pgsession.Refusal(err) != nil || errors.Is(err, session.ErrPooler) || errors.Is(err, session.ErrUnsupported) {
		return driver.Permanent(err)
	}
	return err
}

// Do runs f on a connection of its own, which carries no lock.
func Do(ctx context.Context, dialer *pgsession.Dialer, f func(*pgx.Conn) error) error {
	reached, err := dialer.Do(ctx, f)
	if !reached {
		return Unreachable(err)
	}
	return err
}

// Connection returns an error with the text of err that matches driver.ErrConnection, and err.
func Connection(err error) error { return &connectionError{err} }

// A connectionError matches driver.ErrConnection.
type connectionError struct{ err error }

func (e *connectionError) Error() string { return e.err.Error() }

func (e *connectionError) Is(target error) bool { return target == driver.ErrConnection }

func (e *connectionError) Unwrap() error { return e.err }
