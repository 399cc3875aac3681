package leasetest_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A broken store is right but for what its kind changes.
type broken struct {
	*leasetest.Store
	kind  string
	board *board
}

func (b *broken) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	switch b.kind {
	case "keys are ignored":
		r.IdempotencyKey = ""
	case "delays are ignored":
		r.LockDelay = 0
	case "minimum holds are ignored":
		r.MinHold = 0
	case "lifetimes are ignored":
		r.MaxLifetime = 0
	case "metadata is dropped":
		r.Metadata = nil
	case "names are folded":
		r.Name = strings.ToLower(r.Name)
	case "acquiring needs a sweep":
		if record, err := b.Get(ctx, r.Name); err == nil && record.State == lease.Expired {
			return lease.Lease{}, &lease.HeldError{Name: r.Name, Holder: record.Holder, Remaining: 1, Retry: 1}
		}
	}
	l, err := b.Store.Acquire(ctx, r)
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		switch b.kind {
		case "everybody holds":
			l, err = lease.Lease{Claim: lease.Claim{Name: r.Name, Holder: r.Holder, ID: "x", Token: 1}}, nil
		case "retries are not jittered":
			held.Retry = min(held.Remaining, time.Second)
		}
	}
	return l, err
}

func (b *broken) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	if b.kind == "renewals go by token" {
		if record, err := b.Get(ctx, r.Name); err == nil && record.Token == r.Token {
			r.Claim = record.Claim
		}
	}
	if b.kind == "renewals know no metadata" {
		r.Metadata = nil
	}
	l, err := b.Store.Renew(ctx, r)
	if b.kind == "what remains is the TTL" && err == nil {
		l.Remaining = r.TTL
	}
	return l, err
}

func (b *broken) Release(ctx context.Context, c lease.Claim) error {
	if b.kind == "releases go by holder" {
		if record, err := b.Get(ctx, c.Name); err == nil && record.Holder == c.Holder {
			c = record.Claim
		}
	}
	record, _ := b.Get(ctx, c.Name)
	err := b.Store.Release(ctx, c)
	if b.kind == "a release works once" && err == nil && record.State == lease.Free {
		return &lease.NotFoundError{Name: c.Name}
	}
	return err
}

func (b *broken) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	if b.kind == "a list begins at after" {
		return func(yield func(lease.Record, error) bool) {
			if record, err := b.Get(ctx, r.After); err == nil && !yield(record, nil) {
				return
			}
			b.Store.List(ctx, r)(yield)
		}
	}
	return b.Store.List(ctx, r)
}

func (b *broken) Sweep(ctx context.Context, r lease.SweepRequest) (lease.SweepResult, error) {
	result, err := b.Store.Sweep(ctx, r)
	if b.kind == "a forgotten name begins again" && result.Removed > 0 {
		b.Store = leasetest.NewStore() // in that test nothing else is stored then
	}
	return result, err
}

// The suite is worth what it finds. It runs in this test's own binary, where it
// fails.
func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for kind, found := range map[string]string{
		"everybody holds":                          "race:_of_many",
		"acquiring needs a sweep":                  "acquire:_an_expired_lease",
		"names are folded":                         "acquire:_names_that_differ",
		"metadata is dropped":                      "acquire:_a_free_name",
		"renewals know no metadata":                "metadata:_a_renewal_changes_it",
		"retries are not jittered":                 "acquire:_the_recommended_retry",
		"keys are ignored":                         "idempotency:_the_same_request_gets",
		"delays are ignored":                       "LockDelay_is_told",
		"minimum holds are ignored":                "MinHold_is_told",
		"lifetimes are ignored":                    "MaxLifetime_bounds_the_first",
		"renewals go by token":                     "renew:_a_claim_that_does_not_match",
		"what remains is the TTL":                  "renew:_a_renewal_does_not_shorten",
		"releases go by holder":                    "release:_a_stale_holder",
		"a release works once":                     "release:_releasing_once_more",
		"a list begins at after":                   "list:_names_come",
		"a forgotten name begins again":            "tokens_and_versions",
		"it forgets when it restarts":              "reopen:_everything",
		"messages of one sending are turned round": "messages:_all_who_listen",
		"long messages are cut":                    "messages:_each_is_any_text",
		"old messages are heard":                   "messages:_what_was_sent_before",
		"the end of a listener is none":            "messages:_who_does_not_listen",
		"":                                         "", // the control of the control
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			run := "^TestABrokenStore$/^" + regexp.QuoteMeta(found)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+run, "-test.timeout=5m")
			cmd.Env = append(os.Environ(), "LEASETEST_BROKEN=yes "+kind)
			out, err := cmd.CombinedOutput()
			if kind == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err, "%s", out)
			assert.Contains(t, string(out), "--- FAIL: TestABrokenStore/"+found)
			assert.NotContains(t, string(out), "panic:")
		})
	}
}

func TestABrokenStore(t *testing.T) {
	kind, run := strings.CutPrefix(os.Getenv("LEASETEST_BROKEN"), "yes ")
	if !run {
		t.Skip("TestTheSuiteFindsWhatIsBroken runs it")
	}
	leasetest.Run(t, leasetest.Harness{
		New: func(*testing.T) lease.Store { return &broken{leasetest.NewStore(), kind, newBoard()} },
		Reopen: func(_ *testing.T, store lease.Store) lease.Store {
			if kind == "it forgets when it restarts" {
				return leasetest.NewStore()
			}
			return store
		},
	})
}
