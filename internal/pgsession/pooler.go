package pgsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/session"
)

const (
	probeRounds  = 5
	probeTimeout = 2 * time.Second
)

// proveIt is the advice of an error that doubts the server, or what is between it and this process.
const proveIt = "pglatch doctor --prove shows what works there"

var errTransactionPooler = fmt.Errorf("%w: it shares server sessions between clients, so that two of them would hold one lock; "+
	"connect to PostgreSQL directly, or through a pool in session mode (PgBouncer: pool_mode=session); %s", session.ErrPooler, proveIt)

// probePooler checks a connection whose backend pid differs from the one in its key data: it goes
// through a pooler. A transaction pooler gives our idle server session to others; a session pooler
// is fine. A second connection b distinguishes them. Sessions are shared if b, inside a
// transaction, gets a's server session, or if a gets another one while b holds it. A full pool can
// leave the question open; the pid in every answer then continues to guard.
func (m *maker) probePooler(ctx context.Context, a *pgconn.PgConn) (conclusive bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeRounds*probeTimeout)
	defer cancel()
	cc := m.connConfig()
	if err := m.config.before(ctx, cc); err != nil {
		return false, err
	}
	connectCtx, cancelConnect := context.WithTimeout(ctx, probeTimeout)
	defer cancelConnect()
	b, err := pgconn.ConnectConfig(connectCtx, &cc.Config)
	switch {
	case err != nil && connectCtx.Err() != nil:
		return false, ctx.Err() // the second connection got no server session in time
	case err != nil:
		return false, fmt.Errorf("probing the pooler with a second connection: %w", err)
	}
	defer closeNow(b)
	for range probeRounds {
		shared, err := sharesSessions(ctx, a, b)
		if err != nil || shared {
			return shared, err
		}
		if b.IsClosed() {
			return false, nil // the second connection got no server session in time
		}
	}
	return true, nil
}

// sharesSessions returns true with the corresponding error if sessions are shared.
func sharesSessions(ctx context.Context, a, b *pgconn.PgConn) (bool, error) {
	before, err := queryFirst(ctx, a, pingSQL)
	if err != nil {
		return false, err
	}
	bctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	other, err := queryFirst(bctx, b, "BEGIN; SET LOCAL idle_in_transaction_session_timeout TO 0; "+pingSQL)
	var pgErr *pgconn.PgError
	switch {
	case hurried(err):
		return false, err
	case errors.As(err, &pgErr):
		return true, errTransactionPooler // statement pooling refuses BEGIN
	case err != nil:
		return false, ctx.Err()
	}
	if other[0] == before[0] { // in a pool of one, a would now wait for b
		return true, errTransactionPooler
	}
	after, err := queryFirst(ctx, a, pingSQL)
	if err != nil {
		return false, err
	}
	if before[0] != after[0] {
		return true, errTransactionPooler
	}
	_, err = b.Exec(ctx, "ROLLBACK").ReadAll()
	return false, err
}

// closeNow closes a connection without waiting.
func closeNow(conn *pgconn.PgConn) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = conn.Close(ctx)
}
