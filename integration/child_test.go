//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/test/pgtest/lockmode"
)

// childTTL is that of children whose sessions the server is to end soon.
const childTTL = 2 * time.Second

func childLocker(ctx context.Context, dsn string, ttl time.Duration) (*advisory.Locker, error) {
	mode, ok := lockmode.Named(os.Getenv(modeVariable))
	if !ok {
		return nil, errors.New("a child without a mode")
	}
	return advisory.Open(ctx, mode.Config(advisory.Config{DSN: dsn, SessionTTL: ttl, Wait: patience}))
}

// holdUntilKilled says "held", and how the lock's context ended, and then whether
// the lock ever came back.
func holdUntilKilled(ttl time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, dsn string) error {
		l, err := childLocker(ctx, dsn, ttl)
		if err != nil {
			return err
		}
		lock, err := l.Acquire(ctx, agents.ID(1))
		if err != nil {
			return err
		}
		fmt.Println("held")
		<-lock.Context().Done()
		fmt.Println("lost", context.Cause(lock.Context()))
		for range time.Tick(100 * time.Millisecond) {
			if lock.Context().Err() == nil || l.Stats().Held != 0 {
				fmt.Println("holds again")
			} else {
				fmt.Println("not held")
			}
		}
		return nil
	}
}

func waitUntilKilled(ctx context.Context, dsn string) error {
	l, err := childLocker(ctx, dsn, session.DefaultTTL)
	if err != nil {
		return err
	}
	fmt.Println("waiting")
	if _, err = l.Acquire(ctx, agents.ID(1)); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}

// aPause is longer than a session lives: nobody holds a lock after one.
const aPause = childTTL * 3 / 2

// actAfterEachPause acts all the time while its lock is held. It says "pause" for
// each act that comes after a pause, and what the act found.
func actAfterEachPause(ctx context.Context, dsn string) error {
	l, err := childLocker(ctx, dsn, childTTL)
	if err != nil {
		return err
	}
	lock, err := l.Acquire(ctx, agents.ID(1))
	if err != nil {
		return err
	}
	work := lock.Context()
	fmt.Println("held")
	last := time.Now()
	for range time.Tick(10 * time.Millisecond) {
		if time.Since(last) >= aPause {
			err := work.Err()
			fmt.Println("pause", err, context.Cause(work))
		}
		last = time.Now()
	}
	return nil
}

// holdWithoutLease holds a plain advisory lock, whose session no timeout ends.
func holdWithoutLease(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(99, 1)"); err != nil {
		return err
	}
	fmt.Println("held")
	_, err = conn.WaitForNotification(ctx)
	return err
}
