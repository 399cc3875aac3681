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

// A Backend elects a leader with a session lock of PostgreSQL. It implements
// driver.Backend and all the optional interfaces beside it. Its methods are for
// one goroutine at a time, but for Leader and Migrate, which are for any.
type Backend struct {
	config   Config
	election electionkeys.Keys
	table    string            // as SQL
	plain    *pgsession.Dialer // of connections that carry no lock

	name     string // of the election, as the table has it; "" = it is called by its key
	identity string
	ttl      time.Duration
	dialer   *pgsession.Dialer // of lock sessions for identity and ttl; nil before the first attempt
	current  *lockSession      // nil = no session
	stale    *serverSession    // the session before, as long as it may hold the election lock
	lastR    uint32            // objid of the last incarnation; 0 = none yet
	own      ownTerm           // which a server that was restarted may still have as the last
	pings    sync.WaitGroup
	problem  atomic.Pointer[error]                 // that Audit returns; nil = none
	pid      atomic.Uint32                         // of the session; 0 = none
	answers  atomic.Pointer[introspect.Membership] // nil = there are none

	// Of the last successful attempt.
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

// New returns a Backend without connecting. It fails if a field of config is
// invalid; no error quotes a password.
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

// LogAttrs is the key: key1 and key2 of a pair, key of a single one.
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

// TryAcquire makes one attempt on the election lock and, if it is free, takes the
// election over: it waits, until ctx ends, for what is left of earlier terms. If
// that takes longer, the error is a *PendingError, the session keeps its place
// and the next attempt goes on. ttl is from MinTTL to MaxTTL: the server ends a
// session that was silent for so long. identity is the session's
// application_name, of which PostgreSQL keeps 63 bytes: a longer one loses its
// middle there.
func (b *Backend) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	if err := checkCandidate(identity, ttl); err != nil {
		return false, err
	}
	if b.identity != identity || b.ttl != ttl {
		_ = b.Close() // which returns nil
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
		b.own = ownTerm{} // somebody else has the lock
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

// openSession returns the session for an attempt, a new one if need be.
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

// closeSession closes the session, and with it every lock as soon as the server hears
// of it.
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

// giveBack gives back what the session holds, or ends the session.
func (b *Backend) giveBack(t *lockSession) {
	if t.main && b.unlock(t) != nil || t.lost() != nil {
		b.closeSession()
		return
	}
	t.main, t.incarnation, t.leads, t.guards = false, namespace.Tag{}, false, guards{}
	t.rest()
}

// Renew asks the server for a sign of life. The answer is waited for until ctx
// ends; a ping that is late is not cancelled, because that would end the session:
// the next Renew waits for it too.
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
			// An answer to a ping from before this call says too little.
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

// Release gives back whatever is held. A leadership is marked as ended in good
// order first. The session stays for the next attempt.
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

// unlock gives back what the session holds, the incarnation first: whoever is granted the
// election lock then finds nothing left to wait for.
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

// Close drops everything at once, connections included, and waits for all
// goroutines of the Backend. The next TryAcquire starts anew. It returns nil.
func (b *Backend) Close() error {
	b.closeSession()
	b.pings.Wait()
	if b.dialer != nil {
		b.dialer.Close()
	}
	return nil
}

// Lost returns a channel that is closed when the session of the last leadership
// has ended: at once if the server says so, else at the end of the lease.
func (b *Backend) Lost() <-chan struct{} { return b.gone }

// Term returns the last leadership's term, or the zero Term.
func (b *Backend) Term() driver.Term {
	if b.token == nil {
		return driver.Term{}
	}
	return b.token.Term
}

// CleanStart reports whether the term before was released. It is false if that is not sure: without terms; if there is no row
// of a term before; and if the row is of another history, because a standby was promoted, a backup restored, or the
// server started since.
func (b *Backend) CleanStart() bool { return b.clean }
