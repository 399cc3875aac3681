package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/introspect"
)

// A mutex has a Locker, and holds one lock at a time.
type mutex struct {
	locker *advisory.Locker
	pool   *pgxpool.Pool
	lock   *advisory.Lock
	tx     pgx.Tx
}

// newMutex has as arguments the number of locks per connection, and a name for others to see.
func newMutex(ctx context.Context, dsn string, args []string) (role, error) {
	perConn, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	m := &mutex{}
	if m.pool, err = connect(ctx, dsn); err != nil {
		return nil, err
	}
	m.locker, err = advisory.Open(ctx, advisory.Config{
		DSN: dsn, LocksPerConn: perConn, Wait: time.Minute, ApplicationName: args[1],
		Answer: introspect.Config{AllowAsk: true, Service: args[1]},
	})
	return m, err
}

func (m *mutex) close() {
	m.locker.Close()
	m.pool.Close()
}

func (m *mutex) answer(ctx context.Context, verb string, args []string) (string, error) {
	key, err := entities.Text(args[0])
	if err != nil {
		return "", err
	}
	switch verb {
	case "try":
		return m.got(m.locker.TryAcquire(ctx, key))
	case "read":
		return m.got(m.locker.With(advisory.Options{Shared: true}).TryAcquire(ctx, key))
	case "wait":
		return m.got(m.locker.Acquire(ctx, key))
	case "slot":
		return m.got(m.locker.With(advisory.Options{Wait: 100 * time.Millisecond}).AcquireSlot(ctx, key, 2))
	case "tx": // in a transaction
		if m.tx, err = m.pool.Begin(ctx); err != nil {
			return "", err
		}
		return m.got(nil, advisory.LockTx(ctx, m.tx, advisory.TxOptions{Try: true}, key))
	case "asked":
		<-m.lock.Asked()
		return "asked", nil
	case "free":
		if m.tx != nil {
			tx := m.tx
			m.tx = nil
			return "free", tx.Rollback(ctx)
		}
		return "free", m.lock.Release()
	case "turns":
		return m.turns(ctx, args)
	}
	return "", unknown(verb)
}

func (m *mutex) got(lock *advisory.Lock, err error) (string, error) {
	if errors.Is(err, advisory.ErrHeld) || errors.Is(err, advisory.ErrTimeout) {
		if m.tx != nil {
			err = m.tx.Rollback(context.Background())
			m.tx = nil
			return "held", err
		}
		return "held", nil
	}
	m.lock = lock
	return "mine", err
}

// turns adds one to a number under the lock, so many times as its second argument says, in two statements.
func (m *mutex) turns(ctx context.Context, args []string) (string, error) {
	key, err := entities.Text(args[0])
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	for range n {
		err := m.locker.Do(ctx, key, func(ctx context.Context) error {
			var sum int
			if err := m.pool.QueryRow(ctx, "SELECT n FROM counter").Scan(&sum); err != nil {
				return err
			}
			_, err := m.pool.Exec(ctx, "UPDATE counter SET n = $1", sum+1)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprint("added ", n), nil
}
