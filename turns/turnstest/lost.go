package turnstest

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/turns"
)

// A lostClaim is a tracer of connections, one of which ends after a claim took effect and before its answer.
type lostClaim struct {
	next atomic.Bool // the next claim with messages is the one
}

// box returns the mailbox of a process on connections of its own.
func (l *lostClaim) box(s *suite, p *Process) *turns.Mailbox {
	s.Helper()
	config := p.Pool.Config()
	config.ConnConfig.Tracer = l
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &lossyConn{Conn: conn}, err
	}
	pool, err := pgxpool.NewWithConfig(s.Context(), config)
	require.NoError(s, err)
	s.Cleanup(pool.Close)
	box, err := turns.Open(s.Context(), turns.Config{Name: "box", Namespace: entities, Pool: pool, Locker: p.Locker})
	require.NoError(s, err)
	return box
}

func (l *lostClaim) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	takes := slices.ContainsFunc(data.Batch.QueuedQueries, func(q *pgx.QueuedQuery) bool { return strings.Contains(q.SQL, "pglatch_turns.take(") })
	if takes && l.next.CompareAndSwap(true, false) {
		conn.PgConn().Conn().(*lossyConn).lose.Store(true) //nolint:forcetypeassert // box dials
	}
	return ctx
}

func (*lostClaim) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*lostClaim) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*lostClaim) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*lostClaim) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// A lossyConn can lose what the server answers.
type lossyConn struct {
	net.Conn
	lose atomic.Bool
	last []byte // that the server sent
}

// committed is how the answer to a transaction ends: ReadyForQuery, without a transaction.
var committed = []byte("Z\x00\x00\x00\x05I")

// Read ends the connection instead of returning the end of the answer, if that is to be lost.
func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.last = append(c.last, b[:n]...)
	if err == nil && c.lose.Load() && bytes.HasSuffix(c.last, committed) {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	c.last = c.last[max(0, len(c.last)-len(committed)):]
	return n, err
}
