package leadertest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// A broken backend is right but for what its kind changes.
type broken struct {
	*leadertest.Backend
	election *leadertest.Election
	kind     string
}

func (b broken) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	ok, err := b.Backend.TryAcquire(ctx, identity, ttl)
	switch {
	case err != nil && b.kind == "an outage is permanent":
		err = driver.Permanent(err)
	case errors.Is(err, leader.ErrPermanent) && b.kind == "a mistake passes":
		err = errors.New(err.Error())
	}
	return ok || b.kind == "everybody leads", err
}

func (b broken) Renew(ctx context.Context, identity string, ttl time.Duration) error {
	holder, ok := b.election.Leader()
	if b.kind == "it goes by names" && ok && holder.Identity == identity {
		return nil
	}
	return b.Backend.Renew(ctx, identity, ttl)
}

func (b broken) Release(ctx context.Context, identity string) error {
	if b.kind == "Release asks nobody" {
		b.election.Kill()
	}
	return b.Backend.Release(ctx, identity)
}

func (b broken) Term() leader.Term {
	if b.kind == "terms stand still" && !b.Backend.Term().IsZero() {
		return leader.Term{Era: 1, N: 1}
	}
	return b.Backend.Term()
}

func (b broken) CleanStart() bool { return b.kind == "every start is clean" || b.Backend.CleanStart() }

func (b broken) Wait(ctx context.Context) error {
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

func (b broken) Close() error {
	if b.kind == "Close releases" {
		_ = b.Backend.Release(context.Background(), "")
	}
	return b.Backend.Close()
}

// The suite is worth what it finds. It runs in this test's own binary, where it
// fails.
func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for kind, found := range map[string]string{
		"everybody leads":        "of_many_nodes_one_leads",
		"it goes by names":       "a_renewal_after_a_loss_fails",
		"Release asks nobody":    "a_release_of_nothing",
		"terms stand still":      "each_leadership_has_a_greater_term",
		"every start is clean":   "a_start_is_clean",
		"Wait goes on":           "Wait_returns_when_its_ctx_ends",
		"Close releases":         "a_start_is_clean",
		"an outage is permanent": "an_outage_is_not_reported_as_permanent",
		"a mistake passes":       "a_mistake_that_no_attempt_mends",
		"":                       "", // the control of the control
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run := "^TestABrokenBackend$/" + regexp.QuoteMeta(found)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+run, "-test.timeout=300s")
			cmd.Env = append(os.Environ(), "LEADERTEST_BROKEN=yes "+kind)
			out, err := cmd.CombinedOutput()
			if kind == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err, "%s", out)
			assert.Contains(t, string(out), "--- FAIL: TestABrokenBackend/"+found)
			assert.NotContains(t, string(out), "panic:")
		})
	}
}

func TestABrokenBackend(t *testing.T) {
	kind := os.Getenv("LEADERTEST_BROKEN")
	if kind == "" {
		t.Skip("TestTheSuiteFindsWhatIsBroken runs it")
	}
	leadertest.Run(t, leadertest.Harness{
		TTL: 500 * time.Millisecond,
		New: func(*testing.T) func() driver.Backend {
			election := leadertest.NewElection()
			return func() driver.Backend { return broken{election.Backend(), election, kind[len("yes "):]} }
		},
		Kill: func(_ *testing.T, b driver.Backend) { b.(broken).Kill() },
		Cut: func(_ *testing.T, b driver.Backend) func() {
			b.(broken).Cut()
			return b.(broken).Heal
		},
		Mistakes: map[string]func(*testing.T) driver.Backend{"a wrong password": func(*testing.T) driver.Backend {
			election := leadertest.NewElection()
			b := broken{election.Backend(), election, kind[len("yes "):]}
			b.SetUnavailable(driver.Permanent(errors.New("wrong password")))
			return b
		}},
	})
}
