package riverlock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/namespace"
)

// maxAwake bounds the jobs of one key that are awake without the lock: the jobs that wait in one
// process, and the available jobs in the database.
const maxAwake = 8

// A Middleware is a rivertype.WorkerMiddleware that runs jobs under the lock of their key. It is
// safe for concurrent use, also by several clients of one database.
type Middleware struct {
	river.MiddlewareDefaults
	locker *advisory.Locker
	db     DB
	config Config
	watch  watch

	mu      sync.Mutex
	waiting map[namespace.Tag]int // jobs that wait for the key in their workers
}

var _ rivertype.WorkerMiddleware = (*Middleware)(nil)

// New returns a Middleware that takes its locks from locker. db is the database of the River client, usually
// its pool. If it fails, the error is a *advisory.ConfigError, and there is nothing to close. Otherwise the
// program must Close the Middleware, after it has stopped its clients and before it closes locker.
func New(locker *advisory.Locker, db DB, config Config) (*Middleware, error) {
	switch {
	case locker == nil:
		return nil, &advisory.ConfigError{Field: "locker", Value: locker, Remedy: "pass what advisory.Open returned"}
	case db == nil:
		return nil, &advisory.ConfigError{Field: "db", Value: db, Remedy: "pass the pool of the River client"}
	case config.Key == nil:
		return nil, &advisory.ConfigError{Field: "Config.Key", Value: nil, Remedy: "set a function that returns the key of a job, such as riverlock.Args makes"}
	case config.Snooze < 0:
		return nil, &advisory.ConfigError{Field: "Config.Snooze", Value: config.Snooze, Remedy: "set a positive duration, or 0 for the default"}
	case config.Watch < 0:
		return nil, &advisory.ConfigError{Field: "Config.Watch", Value: config.Watch, Remedy: "set a positive duration, or 0 for the default"}
	}
	config.Wait = max(0, cmp.Or(config.Wait, 100*time.Millisecond))
	config.Snooze = cmp.Or(config.Snooze, time.Minute)
	config.Watch = cmp.Or(config.Watch, 2*time.Second)
	config.Logger = background.Logger(config.Logger)
	m := &Middleware{locker: locker, db: db, config: config, waiting: map[namespace.Tag]int{}}
	m.watch.init(m.look, config.Watch)
	return m, nil
}

// Close ends the Middleware's background work, and waits for it. Snoozed jobs stay snoozed until
// another process wakes them or their time comes. Close is idempotent.
func (m *Middleware) Close() { m.watch.close() }

// Work runs a job under the lock of its key, or snoozes it. River calls it.
func (m *Middleware) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	key, err := m.config.Key(job)
	if err != nil {
		return err
	}
	if key == (namespace.Key{}) {
		return doInner(ctx)
	}
	var began time.Time
	defer func() { // after the release, also if the job panics
		if !began.IsZero() {
			m.passOn(ctx, key, time.Since(began))
		}
	}()
	ran, err := m.run(ctx, key, func(ctx context.Context) error {
		began = time.Now()
		if err := unmark(ctx, job); err != nil {
			return err
		}
		return doInner(ctx)
	})
	switch {
	case ran:
		return err
	case err == nil || errors.Is(err, advisory.ErrHeld) || errors.Is(err, advisory.ErrTimeout) || errors.Is(err, advisory.ErrPoolExhausted):
		return m.snooze(ctx, key)
	case errors.Is(err, advisory.ErrUnavailable) || errors.Is(err, advisory.ErrLockTableFull):
		m.config.Logger.WarnContext(ctx, "a job is snoozed because its lock cannot be taken now", slog.Int64("job_id", job.ID), slog.String("key", key.String()), slog.Any("error", err))
		return m.snooze(ctx, key)
	}
	return fmt.Errorf("riverlock: lock of job %d: %w", job.ID, err)
}

// run runs fn under the lock on key. If the lock is held, it waits in the worker, if one of the
// places for waiting jobs is free. Without the lock it returns false, with a nil error if the key
// is held.
func (m *Middleware) run(ctx context.Context, key namespace.Key, fn func(context.Context) error) (ran bool, err error) {
	if m.config.Wait == 0 {
		return m.locker.DoOrSkip(ctx, key, fn)
	}
	leave, ok := m.enter(key.Tag())
	if !ok {
		return false, nil
	}
	defer leave()
	err = m.locker.With(advisory.Options{Wait: m.config.Wait}).Do(ctx, key, func(ctx context.Context) error {
		ran = true
		leave()
		return fn(ctx)
	})
	return ran, err
}

// enter takes one of the places for jobs that wait for a key. leave gives the place back, and may
// be called more than once.
func (m *Middleware) enter(tag namespace.Tag) (leave func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting[tag] == maxAwake {
		return nil, false
	}
	m.waiting[tag]++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.waiting[tag]--; m.waiting[tag] == 0 {
			delete(m.waiting, tag)
		}
	}), true
}

// snooze makes River set the job aside, marked with the key that it waits for.
func (m *Middleware) snooze(ctx context.Context, key namespace.Key) error {
	if err := river.MetadataSet(ctx, MetadataKey, key.Tag().String()); err != nil {
		return err
	}
	m.watch.add(key)
	return river.JobSnooze(pause.AtMost(m.config.Snooze))
}

// unmark makes River remove the mark of a job that was snoozed, when this attempt ends.
func unmark(ctx context.Context, job *rivertype.JobRow) error {
	if !bytes.Contains(job.Metadata, []byte(MetadataKey)) {
		return nil
	}
	return river.MetadataSet(ctx, MetadataKey, nil)
}

// passOn wakes the next jobs of a key that was held for some time. It wakes as many as River will
// probably work before it fetches again, so that short jobs need not wait for the next fetch.
func (m *Middleware) passOn(ctx context.Context, key namespace.Key, held time.Duration) {
	awake := min(maxAwake, 1+int(m.config.Wait/max(held, time.Millisecond)))
	if _, err := m.wake(context.WithoutCancel(ctx), key, awake); err != nil {
		m.config.Logger.WarnContext(ctx, "the next job of a key is not woken yet", slog.String("key", key.String()), slog.Any("error", err))
		m.watch.add(key)
	}
}

// look wakes a job of a key that is free. It reports true if no job waits for the key, or the
// Middleware's work is over for good.
func (m *Middleware) look(ctx context.Context, key namespace.Key) (done bool) {
	ran, err := m.locker.DoOrSkip(ctx, key, func(context.Context) error { return nil })
	if err != nil || !ran {
		return errors.Is(err, advisory.ErrClosed)
	}
	waiting, err := m.wake(ctx, key, 1)
	return err == nil && waiting == 0
}
