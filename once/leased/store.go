package leased

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/once"
)

// Keeps is how long a Store knows that a tick was run. The tick's end is a lease of lease.MaxTTL,
// which begins MaxEarly before the tick at the earliest. The subtracted hour covers that, and an
// earlier claim.
const Keeps = lease.MaxTTL - time.Hour

// Leases has the methods that a Store needs of a lease.Store. The Client of lease/leasehttp has
// them too.
type Leases interface {
	Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error)
	Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error)
	Release(ctx context.Context, c lease.Claim) error
	Get(ctx context.Context, name string) (lease.Record, error)
	List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error]
}

// A Store keeps claims as leases. It has nothing to close.
type Store struct{ leases Leases }

var _ once.Store = (*Store)(nil)

// New returns a Store on leases. The caller owns leases, and must make sure that it is swept from
// time to time. A lock server sweeps by itself.
func New(leases Leases) *Store { return &Store{leases} }

// Keeps implements once.Store.
func (s *Store) Keeps() time.Duration { return Keeps }

// Claim implements once.Store. The lease of a tick is the claim. With the lease, Claim checks once
// more for the record of the tick's end, which is written before the lease is released.
func (s *Store) Claim(ctx context.Context, r once.Request) (once.Claim, error) {
	if err := r.Validate(); err != nil {
		return once.Claim{}, err
	}
	if err := s.noted(ctx, r.Job, r.Tick); err != nil {
		return once.Claim{}, err
	}
	sent := lease.Now()
	l, err := s.leases.Acquire(ctx, lease.AcquireRequest{Name: runName(r.Job, r.Tick), Holder: r.Node, TTL: r.TTL})
	if errors.Is(err, lease.ErrHeld) {
		return once.Claim{}, s.running(ctx, r)
	}
	if err != nil {
		return once.Claim{}, failed(err)
	}
	if err := s.check(ctx, r, l, lease.Trust(sent, l, 0)); err != nil {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.TTL)
		defer cancel()
		_ = s.leases.Release(within, l.Claim) // or it expires
		return once.Claim{}, err
	}
	return once.Claim{
		Job: r.Job, Tick: r.Tick, Node: r.Node, ID: l.ID, Token: l.Token, Began: l.AcquiredAt.UTC(), Remaining: l.Remaining,
	}, nil
}

// check returns nil if the tick may be run under the lease, which is trusted until until.
func (s *Store) check(ctx context.Context, r once.Request, l lease.Lease, until lease.Moment) error {
	if err := s.noted(ctx, r.Job, r.Tick); err != nil {
		return err
	}
	if until.Passed() {
		return fmt.Errorf("once/leased: %w: its answers took as long as the claim lasts", once.ErrBusy)
	}
	return r.Check(l.AcquiredAt)
}

// noted returns a *once.TakenError if the tick has ended.
func (s *Store) noted(ctx context.Context, job string, tick time.Time) error {
	end, err := s.leases.Get(ctx, endName(job, tick))
	switch {
	case errors.Is(err, lease.ErrNotFound):
		return nil
	case err != nil:
		return failed(err)
	}
	return &once.TakenError{Record: noteOf(job, tick, end)}
}

// running returns the error for a tick whose lease another node has.
func (s *Store) running(ctx context.Context, r once.Request) error {
	taken := &once.TakenError{Record: once.Record{Job: r.Job, Tick: r.Tick, State: once.Running}}
	if run, err := s.leases.Get(ctx, runName(r.Job, r.Tick)); err == nil {
		taken.Node, taken.Token, taken.Began = run.Holder, run.Token, run.AcquiredAt.UTC()
	}
	return taken
}

// Renew implements once.Store.
func (s *Store) Renew(ctx context.Context, c once.Claim, ttl time.Duration) (time.Duration, error) {
	l, err := s.leases.Renew(ctx, lease.RenewRequest{Claim: claim(c), TTL: ttl})
	if lease.IsOver(err) {
		return 0, &once.LostError{Job: c.Job, Tick: c.Tick, Cause: err}
	}
	return l.Remaining, failed(err)
}

// End implements once.Store. If the claim has expired and another node claims the tick while End
// records its end, both nodes may have run the tick. In that case the other node's End reports
// it.
func (s *Store) End(ctx context.Context, c once.Claim, state once.State) error {
	if state == once.Open {
		return s.release(ctx, c)
	}
	_, err := s.leases.Renew(ctx, lease.RenewRequest{Claim: claim(c), TTL: once.DefaultTTL})
	stale, ok := errors.AsType[*lease.StaleError](err)
	switch {
	case ok && stale.Released:
		return s.again(ctx, c, state)
	case ok:
		return &once.LostError{Job: c.Job, Tick: c.Tick}
	case err != nil && !errors.Is(err, lease.ErrExpired) && !errors.Is(err, lease.ErrNotFound):
		return failed(err)
	}
	if err := s.note(ctx, c, state); err != nil {
		return err
	}
	return s.release(ctx, c)
}

// note records how a tick ended.
func (s *Store) note(ctx context.Context, c once.Claim, state once.State) error {
	l, err := s.leases.Acquire(ctx, lease.AcquireRequest{
		Name: endName(c.Job, c.Tick), Holder: c.Node, TTL: lease.MaxTTL, IdempotencyKey: c.ID, Metadata: metadata(c, state),
	})
	switch {
	case errors.Is(err, lease.ErrHeld):
		return &once.LostError{Job: c.Job, Tick: c.Tick}
	case err != nil:
		return failed(err)
	case l.Remaining < Keeps:
		return fmt.Errorf("once/leased: the store grants %v where %v are needed", l.Remaining, lease.MaxTTL)
	}
	return nil
}

// again returns nil if the run already ended in the same way.
func (s *Store) again(ctx context.Context, c once.Claim, state once.State) error {
	end, err := s.leases.Get(ctx, endName(c.Job, c.Tick))
	switch {
	case err != nil && !errors.Is(err, lease.ErrNotFound):
		return failed(err)
	case err == nil && end.Metadata[idField] == c.ID && end.Metadata[stateField] == state.String():
		return nil
	}
	return &once.LostError{Job: c.Job, Tick: c.Tick}
}

func (s *Store) release(ctx context.Context, c once.Claim) error {
	err := s.leases.Release(ctx, claim(c))
	switch {
	case errors.Is(err, lease.ErrStale):
		return &once.LostError{Job: c.Job, Tick: c.Tick}
	case errors.Is(err, lease.ErrExpired), errors.Is(err, lease.ErrNotFound): // and no other node has the tick
		return nil
	}
	return failed(err)
}

func claim(c once.Claim) lease.Claim {
	return lease.Claim{Name: runName(c.Job, c.Tick), Holder: c.Node, ID: c.ID, Token: c.Token}
}

// failed converts the error of a store.
func failed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lease.ErrBusy):
		return fmt.Errorf("once/leased: %w: %w", once.ErrBusy, err)
	case errors.Is(err, lease.ErrNotReady):
		return fmt.Errorf("once/leased: %w: %w", once.ErrNotReady, err)
	}
	return fmt.Errorf("once/leased: %w", err)
}
