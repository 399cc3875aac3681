package leadertest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/broken"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// A faulty backend is right but for what its kind changes.
type faulty struct {
	*leadertest.Backend
	election *leadertest.Election
	kind     string
}

func (b faulty) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	ok, err := b.Backend.TryAcquire(ctx, identity, ttl)
	switch {
	case err != nil && b.kind == "an outage is permanent":
		err = driver.Permanent(err)
	case errors.Is(err, leader.ErrPermanent) && b.kind == "a mistake passes":
		err = errors.New(err.Error())
	}
	return ok || b.kind == "everybody leads", err
}

func (b faulty) Renew(ctx context.Context, identity string, ttl time.Duration) error {
	holder, ok := b.election.Leader()
	if b.kind == "it goes by names" && ok && holder.Identity == identity {
		return nil
	}
	return b.Backend.Renew(ctx, identity, ttl)
}

func (b faulty) Release(ctx context.Context, identity string) error {
	if b.kind == "Release asks nobody" {
		b.election.Kill()
	}
	return b.Backend.Release(ctx, identity)
}

func (b faulty) Term() leader.Term {
	if b.kind == "some leaderships have no term" && b.Backend.Term().N%50 == 0 {
		return leader.Term{}
	}
	if b.kind == "terms stand still" && !b.Backend.Term().IsZero() {
		return leader.Term{Era: 1, N: 1}
	}
	return b.Backend.Term()
}

func (b faulty) CleanStart() bool { return b.kind == "every start is clean" || b.Backend.CleanStart() }

func (b faulty) Wait(ctx context.Context) error {
	if b.kind != "Wait goes on" {
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

func (b faulty) Close() error {
	if b.kind == "Close releases" {
		_ = b.Backend.Release(context.Background(), "")
	}
	return b.Backend.Close()
}

func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	broken.Run(t, run, map[string]string{
		"everybody leads":               "of many nodes one leads",
		"it goes by names":              "a renewal after a loss fails",
		"Release asks nobody":           "a release of nothing",
		"terms stand still":             "each leadership has a greater term",
		"some leaderships have no term": "under concurrent attempts there are never two leaders",
		"every start is clean":          "a start is clean",
		"Wait goes on":                  "Wait returns when its ctx ends",
		"Close releases":                "a start is clean",
		"an outage is permanent":        "an outage is not reported as permanent",
		"a mistake passes":              "a mistake that no attempt mends",
	})
}

// run runs the suite on backends with a fault.
func run(t *testing.T, kind string) {
	t.Helper()
	leadertest.Run(t, leadertest.Harness{
		TTL: 500 * time.Millisecond,
		New: func(*testing.T) func() driver.Backend {
			election := leadertest.NewElection()
			return func() driver.Backend { return faulty{election.Backend(), election, kind} }
		},
		Kill: func(_ *testing.T, b driver.Backend) { b.(faulty).Kill() },
		Cut: func(_ *testing.T, b driver.Backend) func() {
			b.(faulty).Cut()
			return b.(faulty).Heal
		},
		Mistakes: map[string]func(*testing.T) driver.Backend{"a wrong password": func(*testing.T) driver.Backend {
			election := leadertest.NewElection()
			b := faulty{election.Backend(), election, kind}
			b.SetUnavailable(driver.Permanent(errors.New("wrong password")))
			return b
		}},
	})
}

func harness(wrap func(*leadertest.Backend) driver.Backend) leadertest.Harness {
	return leadertest.Harness{
		TTL: time.Second,
		New: func(*testing.T) func() driver.Backend {
			election := leadertest.NewElection()
			return func() driver.Backend { return wrap(election.Backend()) }
		},
	}
}

func TestTheElectionInMemoryConforms(t *testing.T) {
	t.Parallel()
	h := harness(func(b *leadertest.Backend) driver.Backend { return b })
	h.Kill = func(_ *testing.T, b driver.Backend) { b.(*leadertest.Backend).Kill() }
	h.Cut = func(_ *testing.T, b driver.Backend) func() {
		b.(*leadertest.Backend).Cut()
		return b.(*leadertest.Backend).Heal
	}
	leadertest.Run(t, h)
}

func TestABackendWithoutAbilitiesConforms(t *testing.T) {
	t.Parallel()
	leadertest.Run(t, harness(func(b *leadertest.Backend) driver.Backend { return struct{ driver.Backend }{b} }))
}

func try(t *testing.T, b driver.Backend, identity string) bool {
	t.Helper()
	ok, err := b.TryAcquire(t.Context(), identity, time.Hour)
	require.NoError(t, err)
	return ok
}

func TestALeaseEndsToTheNanosecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a, b := election.Backend(), election.Backend()
		require.True(t, try(t, a, "a"))
		bubble.Sleep(30 * time.Minute)
		require.NoError(t, a.Renew(t.Context(), "a", time.Hour))
		bubble.Sleep(time.Hour - 1)
		assert.False(t, try(t, b, "b"))
		bubble.Sleep(time.Nanosecond)
		assert.True(t, try(t, b, "b"))
	})
}

func TestACutNodeHearsNothingAndItsLeaseGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a, b := election.Backend(), election.Backend()
		require.True(t, try(t, a, "a"))
		lost := a.Lost()
		a.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, a.Renew(ctx, "a", time.Hour), context.DeadlineExceeded)
		require.NoError(t, a.Close())
		assert.False(t, try(t, b, "b"), "the other end knows nothing of the Close")
		bubble.Sleep(time.Hour)
		assert.True(t, try(t, b, "b"))
		select {
		case <-lost:
			assert.Fail(t, "it heard of the loss")
		default:
		}
		answer := make(chan bool)
		go func() { answer <- try(t, a, "a") }()
		synctest.Wait()
		a.Heal()
		assert.False(t, <-answer, "a call that hung goes on")
	})
}

func TestAHealedNodeEndsWhatItLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a := election.Backend()
		require.True(t, try(t, a, "a"))
		term := a.Term()
		a.Cut()
		require.NoError(t, a.Close())
		a.Heal()
		require.True(t, try(t, a, "a"))
		assert.True(t, a.Term().Follows(term))
		assert.False(t, a.CleanStart())
	})
}

func TestANodeThatIsHealedLearnsOfItsLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a := election.Backend()
		require.True(t, try(t, a, "a"))
		a.Cut()
		election.Steal("thief", time.Hour)
		a.Heal()
		<-a.Lost()
		require.ErrorIs(t, a.Renew(t.Context(), "a", time.Hour), leader.ErrLost)
		holder, ok := election.Leader()
		assert.True(t, ok)
		assert.Equal(t, "thief", holder.Identity)
	})
}

func TestUnavailableMeansThatCallsFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		election := leadertest.NewElection()
		a, b := election.Backend(), election.Backend()
		require.True(t, try(t, a, "a"))
		election.SetUnavailable(down)
		require.ErrorIs(t, a.Renew(t.Context(), "a", time.Hour), down)
		require.ErrorIs(t, a.Release(t.Context(), "a"), down)
		require.ErrorIs(t, b.Wait(t.Context()), down)
		_, err := b.TryAcquire(t.Context(), "b", time.Hour)
		require.ErrorIs(t, err, down)
		_, _, err = b.Leader(t.Context())
		require.ErrorIs(t, err, down)
		a.SetUnavailable(nil)
		require.NoError(t, a.Renew(t.Context(), "a", time.Hour))
		_, ok := election.Leader()
		assert.True(t, ok, "the lease went on")
		election.Kill()
		_, ok = election.Leader()
		assert.False(t, ok)
	})
}
