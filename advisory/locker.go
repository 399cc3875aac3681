package advisory

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A Locker takes locks on a connection pool of its own. It is safe for concurrent use, and so are
// its copies. Several Lockers of one process on one database know each other's locks: if a context
// carries a lock, all of them reject requests for its key with ErrReentrant. A zero Locker (one
// that was not returned by Open) behaves like a closed one.
type Locker struct {
	core    *core
	options Options
}

// Open connects once and returns a Locker. ctx bounds only the call to Open. If Open fails, nothing
// is left open. The program must Close the Locker. Errors:
//
//   - *ConfigError for a bad field
//   - ErrUnavailable, with the reason that PostgreSQL or the network gave
//   - ErrRefused if a retry would change nothing
//   - ErrStandby
//   - ErrPooler
//   - the cause of ctx
//
// Open checks for a standby and for a pooler that shares sessions. The command pglatch doctor --prove checks more:
// exclusion, queues, leases and everything else that locks rely on.
func Open(ctx context.Context, config Config) (*Locker, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	var cc *pgx.ConnConfig // nil = the sessions are not PostgreSQL's
	source, err := session.Open(ctx, func() (session.Source, error) {
		conn, err := config.connConfig()
		if err != nil {
			return nil, err
		}
		cc = conn
		config.ApplicationName = cmp.Or(config.ApplicationName, cc.RuntimeParams["application_name"], pgsession.ProcessName())
		return config.dial(ctx, cc)
	})
	if err != nil {
		return nil, err
	}
	c := newCore(config, source)
	if cc != nil {
		c.join(cc)
	}
	return c.traced(), nil
}

// dial opens a Locker's sessions on PostgreSQL.
func (c Config) dial(ctx context.Context, cc *pgx.ConnConfig) (session.Source, error) {
	pool, err := pgsession.Open(ctx, pgsession.Config{
		ConnConfig:      cc,
		BeforeConnect:   c.BeforeConnect,
		MaxSessions:     c.MaxConns,
		T:               c.SessionTTL,
		LossDrain:       c.LossDrain,
		ApplicationName: c.ApplicationName,
	})
	if err != nil {
		return nil, fmt.Errorf("advisory: opening: %w", err)
	}
	return pool, nil
}

// With returns a copy of the Locker whose calls use the given options in place of the
// original's. The copy is cheap. It shares everything with the original, so Close closes both.
func (l *Locker) With(options Options) *Locker {
	return &Locker{core: l.core, options: options}
}

// Close ends the Locker, and blocks until all its goroutines and connections have ended. Waits
// end with ErrClosed. Release all locks before you call Close: locks that are still held are
// lost, with ErrClosed as the cause. Close is idempotent. When it returns, the Logger and the
// Tracer have received all losses, unless such a report itself called Close.
func (l *Locker) Close() {
	if l.core != nil {
		l.core.close()
	}
}

// Do runs fn under the lock on key, after a wait of at most the Locker's Wait. The context that fn
// gets ends when the lock is lost. Do releases the lock when fn returns or panics.
//
// If Do gets no lock, it does not run fn, and returns the error that Acquire would have returned.
// Otherwise Do returns fn's error. If the lock was lost before fn returned, Do joins a *LostError
// to fn's error, because another caller may have held the lock in the meantime. If fn is nil, the
// error is a *ConfigError, and nothing is locked.
func (l *Locker) Do(ctx context.Context, key namespace.Key, fn func(ctx context.Context) error) error {
	if err := checkWork(fn); err != nil {
		return err
	}
	lock, err := l.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return lock.run(fn)
}

// DoOrSkip is Do without a wait. If somebody else holds the key, or the context already carries a
// lock on it, DoOrSkip does not run fn, and returns false and no error. Stats.Skips and
// Stats.ReentrantSkips count the two cases separately. In a Tracer's AcquireData.Err, the first
// is a *HeldError and the second an ErrReentrant. ran reports whether fn ran.
func (l *Locker) DoOrSkip(ctx context.Context, key namespace.Key, fn func(ctx context.Context) error) (ran bool, err error) {
	if err := checkWork(fn); err != nil {
		return false, err
	}
	lock, err := l.try(ctx, key, false)
	// Match the error itself, not a context's cause that it may wrap.
	switch err.(type) { //nolint:errorlint // see above
	case nil:
		return true, lock.run(fn)
	case *HeldError:
		l.core.stats.skips.Add(1)
		return false, nil
	case *reentrantError:
		l.core.skippedReentrant(ctx, key)
		return false, nil
	}
	return false, err
}

// checkWork rejects a nil function before anything is locked for it.
func checkWork(fn func(ctx context.Context) error) error {
	if fn == nil {
		return &ConfigError{"fn", "nil", "give the function that does the work, or call Acquire to do it elsewhere"}
	}
	return nil
}

// run runs fn under the lock.
func (l *Lock) run(fn func(ctx context.Context) error) (err error) {
	defer func() {
		if lost := l.Release(); lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	return fn(l.Context())
}

// Acquire waits for the lock on key, for at most the Locker's Wait, and returns it. The caller must
// Release it.
//
// ctx bounds the wait, and the lock's context is derived from it. If ctx ends during the wait,
// Acquire returns the cause at once. The request is cleaned up in the background, and nothing stays
// locked. If ctx ends later, the lock stays held until its Release. Errors: *TimeoutError,
// ErrReentrant, ErrDeadlock, ErrPoolExhausted, namespace.ErrInvalidKey, ErrUnavailable, ErrRefused,
// ErrLockTableFull, ErrClosed, and the cause of ctx.
func (l *Locker) Acquire(ctx context.Context, key namespace.Key) (*Lock, error) {
	r, err := l.request(ctx, key)
	if err != nil {
		return nil, err
	}
	return l.core.acquire(ctx, r)
}

// TryAcquire takes the lock on key if it is free now. Otherwise the error is a *HeldError that
// names the holder. Finding the holder costs one query. If the pool has no connection to spare,
// that query is skipped, and the error names no holder. TryAcquire waits only for a connection of
// the lock pool, for at most the Locker's Wait. Other errors are those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, key namespace.Key) (*Lock, error) {
	return l.try(ctx, key, true)
}

func (l *Locker) try(ctx context.Context, key namespace.Key, explain bool) (*Lock, error) {
	r, err := l.request(ctx, key)
	if err != nil {
		return nil, err
	}
	r.Try, r.explain = true, explain
	return l.core.acquire(ctx, r)
}
