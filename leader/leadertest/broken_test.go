package leadertest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/broken"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// A backend is right, but for the answers that a fault changes.
type backend struct {
	*leadertest.Backend
	election *leadertest.Election

	acquired func(ok bool, err error) (bool, error)
	renews   func(identity string) (anyway bool)
	releases func()
	term     func(driver.Term) driver.Term
	clean    bool
	waitsOn  bool
	closes   func()
}

func newBackend(election *leadertest.Election, breaks func(*backend)) *backend {
	b := &backend{Backend: election.Backend(), election: election}
	breaks(b)
	return b
}

func (b *backend) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	ok, err := b.Backend.TryAcquire(ctx, identity, ttl)
	if b.acquired != nil {
		return b.acquired(ok, err)
	}
	return ok, err
}

func (b *backend) Renew(ctx context.Context, identity string, ttl time.Duration) error {
	if b.renews != nil && b.renews(identity) {
		return nil
	}
	return b.Backend.Renew(ctx, identity, ttl)
}

func (b *backend) Release(ctx context.Context, identity string) error {
	if b.releases != nil {
		b.releases()
	}
	return b.Backend.Release(ctx, identity)
}

func (b *backend) Term() driver.Term {
	if term := b.Backend.Term(); b.term == nil || term.IsZero() {
		return term
	}
	return b.term(b.Backend.Term())
}

func (b *backend) CleanStart() bool { return b.clean || b.Backend.CleanStart() }

func (b *backend) Wait(ctx context.Context) error {
	if !b.waitsOn {
		return b.Backend.Wait(ctx)
	}
	over := make(chan error, 1)
	go func() { over <- b.Backend.Wait(context.WithoutCancel(ctx)) }()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backend) Close() error {
	if b.closes != nil {
		b.closes()
	}
	return b.Backend.Close()
}

func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	broken.Run(t, func(t *testing.T, breaks func(*backend)) {
		t.Helper()
		leadertest.Run(t, leadertest.Harness{
			TTL: 500 * time.Millisecond,
			New: func(*testing.T) func() driver.Backend {
				election := leadertest.NewElection()
				return func() driver.Backend { return newBackend(election, breaks) }
			},
			Kill: func(_ *testing.T, b driver.Backend) { b.(*backend).Kill() },
			Cut: func(_ *testing.T, b driver.Backend) func() {
				b.(*backend).Cut()
				return b.(*backend).Heal
			},
			Mistakes: map[string]func(*testing.T) driver.Backend{"a wrong password": func(*testing.T) driver.Backend {
				b := newBackend(leadertest.NewElection(), breaks)
				b.SetUnavailable(driver.Permanent(errors.New("wrong password")))
				return b
			}},
		})
	}, func(finds broken.Table[backend]) {
		finds("everybody leads", "of many nodes one leads", func(b *backend) { b.acquired = func(_ bool, err error) (bool, error) { return true, err } })
		finds("it goes by names", "a renewal after a loss fails", func(b *backend) {
			b.renews = func(identity string) bool {
				holder, ok := b.election.Leader()
				return ok && holder.Identity == identity
			}
		})
		finds("Release asks nobody", "a release of nothing", func(b *backend) { b.releases = b.election.Kill })
		finds("terms stand still", "each leadership has a greater term", func(b *backend) {
			b.term = func(leader.Term) leader.Term { return leader.Term{Era: 1, N: 1} }
		})
		finds("every start is clean", "a start is clean", func(b *backend) { b.clean = true })
		finds("Wait goes on", "Wait returns when its ctx ends", func(b *backend) { b.waitsOn = true })
		finds("Close releases", "a start is clean", func(b *backend) { b.closes = func() { _ = b.Backend.Release(context.Background(), "") } })
		finds("an outage is permanent", "an outage is not reported as permanent", func(b *backend) {
			b.acquired = func(ok bool, err error) (bool, error) {
				if err != nil {
					err = driver.Permanent(err)
				}
				return ok, err
			}
		})
		finds("a mistake passes", "a mistake that no attempt mends", func(b *backend) {
			b.acquired = func(ok bool, err error) (bool, error) {
				if errors.Is(err, leader.ErrPermanent) {
					err = errors.New(err.Error())
				}
				return ok, err
			}
		})
	})
}
