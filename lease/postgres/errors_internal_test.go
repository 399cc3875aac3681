package postgres

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/lease"
)

// A session that is ended while it connects, and a server that goes away then, are no reason
// to give up for good.
func TestAConnectionThatFailsInTheMakingIsBusyUnlessTheServerRefusesIt(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "57P02"}, &pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "53300"},
		&pgconn.PgError{Code: "08006"}, io.ErrUnexpectedEOF, io.EOF, &net.OpError{Op: "dial", Err: errors.New("refused")},
	} {
		assert.ErrorIs(t, unreachable(err), lease.ErrBusy, "%v", err)
	}
	for _, err := range []error{&pgconn.PgError{Code: "28P01"}, &pgconn.PgError{Code: "3D000"}, &pgconn.PgError{Code: "42501"}} {
		assert.ErrorIs(t, unreachable(err), lease.ErrNotReady, "%v", err)
	}
}
