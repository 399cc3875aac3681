package migratelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/pglatch/pglatch/advisory"
)

// Lock waits for the lock, for at most Config.Timeout. The error matches database.ErrLocked if this Driver already has
// the lock or waits for it, and if the wait timed out. Other errors are those of advisory.Locker.Acquire and of the
// driver. After an error nothing is locked, and nothing waits.
func (d *Driver) Lock() error {
	if !d.locking.TryLock() {
		return database.ErrLocked
	}
	defer d.locking.Unlock()
	if d.holds() {
		return database.ErrLocked
	}
	began := time.Now()
	lock, err := d.locker().Acquire(d.ctx, d.config.Key)
	if err != nil {
		return fmt.Errorf("migratelock: %w", locked(err))
	}
	if err := d.lockDriver(began); err != nil {
		return errors.Join(err, lock.Release())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lock, d.gave = lock, false
	d.unused = time.AfterFunc(d.config.Unused, func() { d.giveBack(lock) })
	return nil
}

// Unlock releases the lock. The error matches advisory.ErrLost if the lock had been lost. Without a lock it is
// database.ErrNotLocked.
func (d *Driver) Unlock() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gave = false
	if d.lock == nil {
		return database.ErrNotLocked
	}
	return d.unlock()
}

// unlock releases both locks. The caller holds mu.
func (d *Driver) unlock() error {
	d.used()
	err := d.Driver.Unlock()
	if lost := d.lock.Release(); lost != nil {
		err = errors.Join(err, fmt.Errorf("migratelock: %w", lost))
	}
	d.lock = nil
	return err
}

// giveBack releases a lock that was never used.
func (d *Driver) giveBack(lock *advisory.Lock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == lock && d.unused != nil {
		_ = d.unlock() // no caller could receive the error
		d.gave = true
	}
}

// use notes that the lock is used, and fails if it was given back.
func (d *Driver) use() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gave {
		return ErrUnused
	}
	d.used()
	return nil
}

// used stops the timer for an unused lock. The caller holds mu.
func (d *Driver) used() {
	if d.unused != nil {
		d.unused.Stop()
		d.unused = nil
	}
}

func (d *Driver) holds() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lock != nil
}

// lost returns why the lock was lost, or nil if it was not.
func (d *Driver) lost() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	select {
	case <-d.lock.Lost():
		return fmt.Errorf("migratelock: %w", context.Cause(d.lock.Context()))
	default:
		return nil
	}
}

// lockDriver waits for the driver's own lock, which a replica without this package can hold, or one whose lock was
// lost. The driver waits in one statement, so the server gets a limit for it. The statement must end before it blocks
// CREATE INDEX CONCURRENTLY, or waits for longer than deadlock_timeout.
func (d *Driver) lockDriver(began time.Time) (err error) {
	const (
		save = `SELECT set_config('pglatch.lock_timeout', current_setting('lock_timeout'), false)`
		step = `SELECT set_config('lock_timeout', ceil(least(900, 900 * extract(epoch FROM current_setting('deadlock_timeout')::interval)))::text, false)`
		back = `SELECT set_config('lock_timeout', current_setting('pglatch.lock_timeout'), false)`
		// The lock can be granted just as the wait ends with an error, and a second grant would be held past the
		// release of the first. This session can hold no other lock.
		none = `SELECT pg_advisory_unlock_all()`
	)
	if err := errors.Join(d.sql(save), d.sql(step)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.sql(back)) }()
	for {
		err := d.Driver.Lock()
		if err == nil {
			return nil
		}
		err = errors.Join(err, d.sql(none))
		if !timedOut(err) {
			return err
		}
		if d.ctx.Err() != nil || time.Since(began) >= d.config.Timeout {
			return fmt.Errorf("migratelock: a replica without pglatch migrates, or one that has lost its lock: %w: %w", database.ErrLocked, err)
		}
	}
}

// sql runs a statement on the session that migrates.
func (d *Driver) sql(statement string) error { return d.Driver.Run(strings.NewReader(statement)) }

// timedOut reports whether the server ended the driver's wait because of lock_timeout.
func timedOut(err error) bool {
	var failed *database.Error                // does not unwrap
	var server interface{ SQLState() string } // of pgx and of lib/pq
	return errors.As(err, &failed) && errors.As(failed.OrigErr, &server) && server.SQLState() == "55P03"
}
