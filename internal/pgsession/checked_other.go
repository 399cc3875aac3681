//go:build !unix

package pgsession

import (
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// A checkedConn is not available on this platform: no session is verified without a query.
type checkedConn struct{ net.Conn }

func checkDial(dial pgconn.DialFunc) pgconn.DialFunc { return dial }

func (*checkedConn) judged(int64) {}

func (*checkedConn) judgedAll() {}

func (*checkedConn) nothingNew() bool { return false }
