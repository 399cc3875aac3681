package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/introspect"
	leaderdriver "github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
)

// A lockSession is a connection that carries shards. One call at a time has it. When the ctx of a call ends,
// its statement continues to its own end, or to the session's, and the next call waits for it. An interrupted
// statement may have taken effect.
type lockSession struct {
	backend *Backend
	dialer  *pgsession.Dialer
	session *pgsession.Session
	pid     uint32
	ttl     time.Duration
	changed chan struct{}
	lost    chan struct{}

	turn chan struct{} // holds a value while a call is under way; Close waits for it

	held map[string]ownedShard // by name; read under turn or mu, written under both

	// The fields below are guarded by mu.
	odd      []string      // shards whose rows differ from what the session wrote, to be reported as lost
	leaving  []string      // shards that are being released, which are not lost
	reported []string      // shards whose locks must be released, because the node knows that they are lost
	self     driver.Member // the last announcement; guarded by turn

	answers *introspect.Membership // set before the session is shared; nil = it does not answer
	leave   sync.Once

	mu      sync.Mutex
	ended   bool           // ended on purpose, or lost
	cause   error          // why it was lost
	changes driver.Changes // since the last call of Changes
}

var _ interface {
	driver.Session
	driver.Binder
} = (*lockSession)(nil)

func newSession(b *Backend, ttl time.Duration) *lockSession {
	return &lockSession{
		backend: b, ttl: ttl, changed: make(chan struct{}, 1), lost: make(chan struct{}), turn: make(chan struct{}, 1), held: map[string]ownedShard{},
	}
}

// call runs f when it has the turn, and waits for it until ctx ends.
func call[T any](ctx context.Context, o *lockSession, f func() (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return none, fmt.Errorf("no answer yet to what was asked before: %w", context.Cause(ctx))
	}
	if err := o.over(); err != nil {
		<-o.turn
		return none, err
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := f()
		if errors.Is(err, session.ErrLost) {
			o.lose(err)
			err = o.over()
		} else {
			o.session.Listen(o.lose)
		}
		<-o.turn
		done <- outcome{value, err}
	}()
	select {
	case out := <-done:
		if out.err != nil {
			return none, o.backend.failed(out.err)
		}
		return out.value, nil
	case <-ctx.Done():
		return none, fmt.Errorf("no answer yet: %w", context.Cause(ctx))
	}
}

// over returns the error for calls to a session that has ended; nil while it lasts.
func (o *lockSession) over() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case !o.ended:
		return nil
	case o.cause != nil:
		return fmt.Errorf("%w: %w", leaderdriver.ErrLost, o.cause)
	}
	return fmt.Errorf("the session has ended: %w", leaderdriver.ErrLost)
}

// lose records that the session has ended without a request.
func (o *lockSession) lose(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended, o.cause = true, cause
		close(o.lost)
	}
}

// signal tells the node what others did.
func (o *lockSession) signal(changes driver.Changes) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes = o.changes.And(changes)
	select {
	case o.changed <- struct{}{}:
	default: // an earlier signal is still pending
	}
}

// Lost implements driver.Session.
func (o *lockSession) Lost() <-chan struct{} { return o.lost }

// Changed implements driver.Session.
func (o *lockSession) Changed() <-chan struct{} { return o.changed }

// Changes implements driver.Session.
func (o *lockSession) Changes() driver.Changes {
	o.mu.Lock()
	defer o.mu.Unlock()
	changes := o.changes
	o.changes = driver.Changes{}
	return changes
}

// Renew implements driver.Session by a ping, which extends the session's time on the server. ttl is that of
// Open, or less.
func (o *lockSession) Renew(ctx context.Context, ttl time.Duration) ([]string, error) {
	if ttl > o.ttl {
		return nil, wrong("LeaseDuration", ttl, fmt.Sprintf("the session was opened for %v", o.ttl))
	}
	_, err := call(ctx, o, func() (struct{}, error) {
		err := o.session.Ping()
		if err == nil {
			err = o.giveBack()
		}
		return struct{}{}, err
	})
	return o.reports(), err
}

// Look implements driver.Session.
func (o *lockSession) Look(ctx context.Context, known uint64) (driver.View, error) {
	var began time.Time
	seen, err := call(ctx, o, func() (group.View, error) {
		began = time.Now()
		return o.backend.group.Look(o.session, known)
	})
	if err != nil {
		return driver.View{}, err
	}
	o.backend.verify(seen.Owners, began)
	return viewOf(seen), nil
}

// Claim implements driver.Session. It skips names that have no key, names whose key belongs to another shard,
// and names for which Config.MaxLocks leaves no room. If it gets no shard, it returns the reason as
// an error.
func (o *lockSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	return call(ctx, o, func() ([]driver.Grant, error) { return o.claim(ctx, names) })
}

func (o *lockSession) claim(ctx context.Context, names []string) (grants []driver.Grant, problem error) {
	if err := o.giveBack(); err != nil {
		return nil, err
	}
	keys := make(map[string]int64, len(names))
	for _, name := range names {
		if _, held := o.held[name]; held {
			continue // the server would grant the lock a second time
		}
		key, err := o.backend.group.Key(name)
		if err != nil {
			problem = fmt.Errorf("shards: %q cannot be claimed: %w: %w", name, err, driver.ErrUnclaimable)
			continue
		}
		keys[name] = key
	}
	if len(keys) > 0 {
		limit := o.limit()
		claim, err := o.backend.group.Claim(o.session, keys, o.backend.room.limit(limit, len(keys)), o.patience(ctx))
		if errors.Is(err, pgsession.ErrSlow) {
			err = &SlowError{PID: o.pid, Cause: err}
		}
		if err != nil {
			return nil, err
		}
		o.backend.room.counted(limit, claim.Locks, len(claim.Got))
		for _, got := range claim.Got {
			o.backend.waits.over(got.Name)
			grants = append(grants, driver.Grant{Name: got.Name, Term: driver.Term{Era: uint16(got.Era), N: got.N}})
		}
		o.own(claim.Got, keys)
		if len(claim.Guarded) > 0 {
			guarded, err := o.awaitGuards(claim.Guarded)
			if err != nil {
				return grants, err
			}
			problem = cmp.Or[error](problem, guarded)
		}
		problem = cmp.Or(o.leftOut(claim, keys, limit), problem)
	}
	if problem != nil {
		o.backend.config.Logger.Warn("shards were not claimed", slog.Any("error", problem))
		if len(grants) > 0 {
			return grants, nil
		}
	}
	return grants, problem
}

// leftOut returns why names were not tried; nil = all were tried.
func (o *lockSession) leftOut(claim group.Claim, keys map[string]int64, limit int64) error {
	if claim.LeftOut > 0 {
		return &BudgetError{Wanted: claim.LeftOut, Locks: claim.Locks, Limit: limit}
	}
	for _, clash := range claim.Clashes {
		return &ClashError{clash.Name, clash.Other, o.backend.group.TagOf(keys[clash.Name]).String()}
	}
	return nil
}

// limit returns the number of locks on the server at which a claim takes no more.
func (o *lockSession) limit() int64 {
	if limit := o.backend.config.MaxLocks; limit > 0 {
		return limit
	}
	return o.session.LockTable() * 3 / 4
}

// lockWait limits the wait for a row or a table, so that a call is answered in time.
func (o *lockSession) lockWait() time.Duration { return min(o.ttl/4, time.Second) }

// patience limits a claim's statement, because renewals wait behind it. It is at most a quarter of the lease
// and three quarters of the time left of ctx. So a renewal with the same timeout as the claim is still
// answered in time. It is also less than what a Session gives a statement.
func (o *lockSession) patience(ctx context.Context) time.Duration {
	patience := min(o.ttl/4, 3*time.Second)
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)*3/4)
	}
	return patience
}

// Release implements driver.Session. After an error the session has ended.
func (o *lockSession) Release(ctx context.Context, names []string) error {
	_, err := call(ctx, o, func() (struct{}, error) { return struct{}{}, o.release(names) })
	if err != nil {
		o.kill(err)
	}
	return err
}

func (o *lockSession) release(names []string) error {
	var keys []int64
	for _, name := range names {
		if owned, ok := o.held[name]; ok {
			keys = append(keys, owned.key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	o.mu.Lock()
	o.leaving = names
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		o.leaving = nil
		o.mu.Unlock()
	}()
	if err := o.backend.group.Release(o.session, keys); err != nil {
		return err
	}
	o.disown(names)
	if _, err := o.session.Query(o.backend.notifySQL(payloads(driver.Changes{Released: names})...)); errors.Is(err, session.ErrLost) {
		return err
	}
	return nil // other nodes look soon anyway
}

// Announce implements driver.Session.
func (o *lockSession) Announce(ctx context.Context, self driver.Member) error {
	_, err := call(ctx, o, func() (struct{}, error) { return struct{}{}, o.announce(self) })
	return err
}

func (o *lockSession) announce(self driver.Member) error {
	if self == o.self {
		return nil
	}
	_, err := o.session.Query(o.backend.announceSQL(self))
	if err == nil {
		o.self = self
	}
	return err
}

// Leave implements driver.Session.
func (o *lockSession) Leave(ctx context.Context) error {
	_, err := call(ctx, o, func() (struct{}, error) {
		_, err := o.session.Query(o.backend.leaveSQL())
		o.mu.Lock()
		o.ended = true // also after an error: the session's locks are then unknown
		o.mu.Unlock()
		return struct{}{}, err
	})
	return err
}

// Close implements driver.Session. It returns nil.
func (o *lockSession) Close() error {
	o.mu.Lock()
	o.ended = true
	o.mu.Unlock()
	o.session.Kill(errClosed)
	o.turn <- struct{}{}
	o.session.Close(false)
	<-o.turn
	o.dialer.Close()
	o.backend.mu.Lock()
	delete(o.backend.sessions, o)
	o.backend.mu.Unlock()
	o.leave.Do(o.answers.Leave)
	return nil
}

// kill ends a session whose shards are unknown.
func (o *lockSession) kill(cause error) {
	o.lose(cause)
	o.session.Kill(cause)
}

var (
	errClosed  = errors.New("session closed")
	errGuarded = errors.New("it is claimed when that has ended")
)
