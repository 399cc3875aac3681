package pgsession

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/background"
)

// userTimeout is how long sent data may stay unacknowledged: keepalive probes are not sent while data
// is in flight.
const userTimeout = 10 * time.Second

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// boundDial ends a dial after timeout: cancel requests are dialled too, and must not hang in a dead
// network.
func boundDial(dial pgconn.DialFunc, timeout time.Duration) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return abandon(ctx, func() (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err == nil && conn == nil {
				err = errNoConn
			}
			return conn, err
		}, func(late net.Conn) {
			if late != nil {
				_ = late.Close()
			}
		})
	}
}

// abandonAfter is the time for a call to react to the end of its context.
const abandonAfter = 100 * time.Millisecond

// abandon calls a function of the program. It returns soon after ctx ends, even if the function ignores
// ctx. late receives a result that comes too late. If the function panics or ends its goroutine, that is
// an error.
func abandon[T any](ctx context.Context, call func() (T, error), late func(T)) (T, error) {
	var result T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended := func(failure error) { err = failure }
		err = background.Call(func() (err error) { result, err = call(); return err }, ended)
	}()
	select {
	case <-done:
		return result, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case <-done:
		return result, err
	case <-timer.C:
	}
	go func() {
		<-done
		late(result)
	}()
	var none T
	return none, context.Cause(ctx)
}

type afterNetConnectFunc = func(context.Context, *pgconn.Config, net.Conn) (net.Conn, error)

// tuneSocket makes the kernel detect a dead peer in about ten seconds, whichever dialer made the
// connection.
func tuneSocket(next afterNetConnectFunc) afterNetConnectFunc {
	return func(ctx context.Context, config *pgconn.Config, conn net.Conn) (net.Conn, error) {
		raw := conn
		if t, ok := raw.(*tls.Conn); ok {
			raw = t.NetConn()
		}
		if c, ok := raw.(*checkedConn); ok {
			raw = c.Conn
		}
		if tcp, ok := raw.(*net.TCPConn); ok {
			// Best effort: the session's own deadline does not depend on them.
			_ = tcp.SetKeepAliveConfig(keepAlive)
			limitUnacknowledged(tcp, userTimeout)
		}
		if next == nil {
			return conn, nil
		}
		return next(ctx, config, conn)
	}
}
