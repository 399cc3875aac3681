package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/electionkeys"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
	"github.com/pglatch/pglatch/leader/postgres/internal/pgelection"
	"github.com/pglatch/pglatch/namespace"
)

// A Backend elects a leader with a session lock of PostgreSQL. It implements driver.Backend and all its
// optional interfaces. Its methods are for one goroutine at a time, except Leader and Migrate, which are safe
// for concurrent use.
type Backend struct {
	config   Config
	election electionkeys.Keys
	table    string            // as SQL
	plain    *pgsession.Dialer // for connections that carry no lock

	name     string // the election's name in the table; "" = named by its key
	identity string
	ttl      time.Duration
	dialer   *pgsession.Dialer // for lock sessions with identity and ttl; nil before the first attempt
	current  *lockSession      // nil = no session
	stale    *serverSession    // the previous session, while it may still hold the election lock
	lastR    uint32            // objid of the last incarnation; 0 = none yet
	own      ownTerm           // a restarted server may still have it as the last term
	pings    sync.WaitGroup
	problem  atomic.Pointer[error]                 // returned by Audit; nil = none
	pid      atomic.Uint32                         // of the present session; 0 = none
	answers  atomic.Pointer[introspect.Membership] // nil = not answering

	// State of the last successful attempt.
	gone  chan struct{}
	token *pgguard.Token
	clean bool
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.LossNotifier
	driver.Auditor
	driver.Termer
	driver.Successor
	driver.Binder
	driver.Inspector
	driver.Observer
	driver.Contest
	driver.Introspector
	driver.Labeled
	io.Closer
} = (*Backend)(nil)

// New returns a Backend without connecting. It fails if a field of config is invalid. No error quotes a
// password.
func New(config Config) (*Backend, error) {
	config, cc, err := config.validated()
	if err != nil {
		return nil, err
	}
	b := &Backend{config: config, election: electionkeys.Of(config.Key.Tag()), table: pgtable.Quote(config.Table)}
	config.ConnConfig = cc.Copy()
	config.Logger = config.Logger.With(slog.String("election", config.Key.String()))
	for _, a := range b.LogAttrs() {
		config.Logger = config.Logger.With(a)
	}
	b.config = config
	b.plain = b.newDialer("", 0)
	return b, nil
}

// LogAttrs returns the key: as key1 and key2 if it is a pair, otherwise as key.
func (b *Backend) LogAttrs() []slog.Attr {
	tag := b.config.Key.Tag()
	if k1, k2, ok := tag.Pair(); ok {
		return []slog.Attr{slog.Int("key1", int(k1)), slog.Int("key2", int(k2))}
	}
	k, _ := tag.Single()
	return []slog.Attr{slog.Int64("key", k)}
}

func (b *Backend) newDialer(applicationName string, t time.Duration) *pgsession.Dialer {
	return pgsession.NewDialer(pgsession.Config{
		ConnConfig: b.config.ConnConfig, BeforeConnect: b.config.BeforeConnect, Connect: b.config.Connect,
		T: t, ApplicationName: applicationName,
	})
}

// TryAcquire makes one attempt on the election lock. If the lock is free, it begins to take over: until ctx
// ends, it waits for sessions and transactions of earlier terms. If that takes longer, the error is a
// *PendingError, the session keeps its place, and the next attempt continues.
//
// ttl is from 500 ms to 24 h: the server ends a session that was silent for that long. identity is the
// session's application_name, of which PostgreSQL keeps 63 bytes. A longer identity is shortened in the middle.
func (b *Backend) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	if err := pgreach.Check(identity, "use text that no other candidate has", ttl); err != nil {
		return false, err
	}
	if b.identity != identity || b.ttl != ttl {
		_ = b.Close() // always returns nil
		b.identity, b.ttl = identity, ttl
		b.dialer = b.newDialer(pgsession.ApplicationName(identity), ttl)
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	t, err := b.openSession(ctx)
	if err != nil {
		return false, err
	}
	stop := t.within(ctx)
	won, err := b.takeOver(ctx, t)
	if !won && err == nil {
		b.own = ownTerm{} // another session holds the lock
		b.compareNames(t)
	}
	stop()
	if err != nil && !errors.Is(err, driver.ErrPending) {
		b.giveBack(t)
		return false, pgreach.Unreachable(err)
	}
	t.rest()
	return won, err
}

// openSession returns the session for an attempt. It opens a new one if necessary.
func (b *Backend) openSession(ctx context.Context) (*lockSession, error) {
	if t := b.current; t != nil {
		t.settle(ctx)
		if t.lost() == nil {
			return t, nil
		}
		b.closeSession()
	}
	s, err := b.dialer.Dial(ctx)
	if err != nil {
		return nil, pgreach.Unreachable(err)
	}
	err = pgtable.Durable(s)
	var start time.Time
	if err == nil {
		start, err = pgelection.BackendStart(s)
	}
	if err != nil {
		s.Close(false)
		return nil, pgreach.Unreachable(err)
	}
	b.current = newLockSession(s, start, pgsession.ApplicationName(b.identity))
	b.pid.Store(s.PID())
	b.answers.Load().Connected()
	return b.current, nil
}

// closeSession closes the session. The server frees its locks as soon as it learns of the close.
func (b *Backend) closeSession() {
	t := b.current
	if t == nil {
		return
	}
	b.current = nil
	b.pid.Store(0)
	if t.leads {
		b.own.lost = time.Now()
	}
	t.close()
	t.report(errClosed)
	if t.main || b.stale == nil {
		b.stale = &t.serverSession
	}
}

// giveBack releases the session's locks, or ends the session.
func (b *Backend) giveBack(t *lockSession) {
	if t.main && b.unlock(t) != nil || t.lost() != nil {
		b.closeSession()
		return
	}
	t.main, t.incarnation, t.leads, t.guards = false, namespace.Tag{}, false, guards{}
	t.rest()
}

// Renew pings the server and waits for the answer until ctx ends. A late ping is not canceled, because that
// would end the session. The next Renew waits for that ping too.
func (b *Backend) Renew(ctx context.Context, identity string, ttl time.Duration) error {
	t := b.current
	if t == nil || !t.leads || identity != b.identity || ttl != b.ttl {
		return fmt.Errorf("%w: %s in a lease of %v does not lead", driver.ErrLost, identity, ttl)
	}
	if lost := t.lost(); lost != nil {
		return fmt.Errorf("%w: %w", driver.ErrLost, lost)
	}
	for fresh := false; ; {
		if t.ping == nil {
			b.startPing(t)
			fresh = true
		}
		select {
		case err := <-t.ping:
			t.ping = nil
			switch {
			case err != nil:
				return fmt.Errorf("%w: %w", driver.ErrLost, err)
			case fresh:
				return nil
			}
			// The answer to a ping from before this call is too old.
		case <-ctx.Done():
			return pgreach.Connection(fmt.Errorf("no answer yet: %w", context.Cause(ctx)))
		}
	}
}

func (b *Backend) startPing(t *lockSession) {
	answer, before, done := make(chan error, 1), t.audited, make(chan struct{})
	t.ping, t.audited = answer, done
	term := b.Term()
	b.pings.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if err := t.session.Ping(); err != nil {
			t.report(err)
			answer <- err
			return
		}
		answer <- nil
		if err := b.audit(t, term); err != nil {
			t.report(err)
			return
		}
		t.rest()
	})
}

// Release releases all locks. It first marks the leadership as cleanly ended. The session stays open for
// the next attempt.
func (b *Backend) Release(ctx context.Context, _ string) error {
	t := b.current
	if t == nil {
		return nil
	}
	t.settle(ctx)
	if t.lost() != nil {
		b.closeSession()
		return nil //nolint:nilerr // nothing is held, or not for longer than the ttl
	}
	if !t.main {
		t.rest()
		return nil
	}
	stop := t.within(ctx)
	if t.leads {
		b.markEnded(ctx, t)
	}
	b.own = ownTerm{} // others may lead now
	t.leads, t.guards = false, guards{}
	err := b.unlock(t)
	stop()
	if err != nil {
		b.closeSession()
		return fmt.Errorf("leader: release of %v: %w", b.config.Key, pgreach.Unreachable(err))
	}
	t.rest()
	return nil
}

// unlock releases the session's locks, the incarnation first. The next holder of the election lock then has
// nothing left to wait for.
func (b *Backend) unlock(t *lockSession) error {
	incarnation := t.incarnation
	t.incarnation = namespace.Tag{}
	if incarnation != (namespace.Tag{}) {
		if err := t.session.Unlock(incarnation, session.Exclusive); err != nil {
			return err
		}
	}
	if err := t.session.Unlock(b.config.Key.Tag(), session.Exclusive); err != nil {
		return err
	}
	t.main = false
	return nil
}

// Close drops everything at once, connections included, and waits for all goroutines of the Backend. The next
// TryAcquire starts afresh. Close returns nil.
func (b *Backend) Close() error {
	b.closeSession()
	b.pings.Wait()
	if b.dialer != nil {
		b.dialer.Close()
	}
	return nil
}

// Lost returns a channel that is closed when the session of the last leadership has ended. It closes at once
// if the server reports the end, otherwise at the end of the lease.
func (b *Backend) Lost() <-chan struct{} { return b.gone }

// Term returns the last leadership's term, or the zero Term.
func (b *Backend) Term() driver.Term {
	if b.token == nil {
		return driver.Term{}
	}
	return b.token.Term
}

// CleanStart reports whether the previous term was released. It is false if that is not certain:
//
//   - The election has no terms.
//   - No row of a previous term exists.
//   - The row comes from an earlier history of the database: since it was written, a standby was promoted, a
//     backup was restored, or the server was started.
func (b *Backend) CleanStart() bool { return b.clean }
