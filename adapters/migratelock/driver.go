package migratelock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/pglatch/pglatch/advisory"
)

// A Driver is a database.Driver of golang-migrate whose Lock and Unlock take and release pglatch's lock in
// addition to the driver's own. Like every driver, it is for one migrate.Migrate.
type Driver struct {
	database.Driver
	config Config
	ctx    context.Context // ends with Close
	close  context.CancelFunc

	locking sync.Mutex // held during Lock

	mu     sync.Mutex
	lock   *advisory.Lock // nil = none
	unused *time.Timer    // releases lock
	gave   bool           // unused released the lock
}

var _ database.Driver = (*Driver)(nil)

// New creates the driver with Config.Open, under the lock, because the driver waits for its own lock at that
// time. ctx and Config.Timeout bound the wait for the lock. Errors: *advisory.ConfigError if the Config is
// not valid, those of advisory.Locker.Do, and that of Config.Open. On failure nothing is left open.
func New(ctx context.Context, config Config) (*Driver, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Driver{config: config}
	err = d.locker().Do(ctx, config.Key, func(context.Context) (err error) {
		d.Driver, err = config.Open()
		return err
	})
	if err != nil {
		if d.Driver != nil {
			err = errors.Join(err, d.Driver.Close())
		}
		return nil, fmt.Errorf("migratelock: %w", locked(err))
	}
	d.ctx, d.close = context.WithCancel(context.Background())
	return d, nil
}

func (d *Driver) locker() *advisory.Locker {
	return d.config.Locker.With(advisory.Options{Wait: d.config.Timeout, Label: "migrations"})
}

// locked adds golang-migrate's error to that of a wait that timed out.
func locked(err error) error {
	if errors.Is(err, advisory.ErrTimeout) {
		return fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	return err
}

// Open fails: a driver that it could return would not take pglatch's lock.
func (d *Driver) Open(string) (database.Driver, error) {
	return nil, errors.New("migratelock: make a Driver with New, and a Migrate with NewWithInstance")
}

// Close ends a wait in Lock, releases the lock, and closes the driver.
func (d *Driver) Close() error {
	d.close()
	d.locking.Lock()
	defer d.locking.Unlock()
	var err error
	if d.holds() {
		err = d.Unlock()
	}
	return errors.Join(err, d.Driver.Close())
}

// Run applies a migration. If the lock was given back, it returns ErrUnused and runs nothing.
func (d *Driver) Run(migration io.Reader) error {
	if err := d.use(); err != nil {
		return err
	}
	return d.Driver.Run(migration)
}

// SetVersion saves the version. dirty marks the beginning of a migration: if the lock was lost, the error then
// matches advisory.ErrLost, and nothing is saved. If the lock was given back, it returns ErrUnused.
func (d *Driver) SetVersion(version int, dirty bool) error {
	if err := d.use(); err != nil {
		return err
	}
	if dirty {
		if err := d.lost(); err != nil {
			return err
		}
	}
	return d.Driver.SetVersion(version, dirty)
}

// Version returns the version.
func (d *Driver) Version() (version int, dirty bool, err error) {
	_ = d.use() // Version is called without a lock too
	return d.Driver.Version()
}

// Drop deletes everything. It deletes nothing if the lock was given back (ErrUnused) or lost
// (advisory.ErrLost).
func (d *Driver) Drop() error {
	if err := errors.Join(d.use(), d.lost()); err != nil {
		return err
	}
	return d.Driver.Drop()
}
