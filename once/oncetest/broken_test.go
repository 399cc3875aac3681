package oncetest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/broken"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/leased"
	"github.com/pglatch/pglatch/once/oncetest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A faulty store is right but for what its fault changes.
type faulty struct {
	once.Store
	fault string

	mu     sync.Mutex
	claims []once.Claim // granted, in order
	ended  int          // calls of End
	calls  int          // of Claim
	both   chan once.Claim
}

func (b *faulty) Claim(ctx context.Context, r once.Request) (once.Claim, error) {
	switch b.fault {
	case "ticks are whole seconds":
		r.Tick = r.Tick.Truncate(time.Second)
	case "windows are ignored":
		r.Window = b.Keeps()
	case "an ended ctx is ignored":
		ctx = context.WithoutCancel(ctx)
	case "two that claim at once get it", "two runners at once get it":
		return b.claimTwice(ctx, r)
	}
	c, err := b.Store.Claim(ctx, r)
	made := once.Claim{Job: r.Job, Tick: r.Tick, Node: r.Node, ID: "made up", Token: 1, Began: time.Now(), Remaining: r.TTL}
	if taken, ok := errors.AsType[*once.TakenError](err); ok {
		switch b.fault {
		case "everybody gets it":
			return made, nil
		case "the holder is not told":
			taken.Node = ""
		}
	}
	if e, ok := errors.AsType[*once.WindowError](err); ok && e.Late < 0 && b.fault == "early ticks are run" || errors.Is(err, once.ErrInvalid) && b.fault == "requests are not checked" {
		return made, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	again := slices.ContainsFunc(b.claims, func(old once.Claim) bool { return old.Job == r.Job && old.Tick.Equal(r.Tick) })
	if err == nil {
		b.claims = append(b.claims, c)
	}
	switch {
	case b.fault == "a tick that died is stuck" && again, b.fault == "waiters are stuck" && again:
		return once.Claim{}, once.ErrBusy
	case b.fault == "tokens begin again" && err == nil, b.fault == "tokens begin again after an end" && err == nil:
		c.Token = 1
	}
	return c, err
}

// claimTwice gives the claim of the first call to the second one, too.
func (b *faulty) claimTwice(ctx context.Context, r once.Request) (once.Claim, error) {
	b.mu.Lock()
	b.calls++
	call := b.calls
	b.mu.Unlock()
	if call == 2 {
		return <-b.both, nil
	}
	c, err := b.Store.Claim(ctx, r)
	if call == 1 {
		b.both <- c
	}
	return c, err
}

func (b *faulty) Renew(ctx context.Context, c once.Claim, ttl time.Duration) (time.Duration, error) {
	switch b.fault {
	case "renewals do nothing", "runs are not renewed":
		return ttl, nil
	}
	remaining, err := b.Store.Renew(ctx, c, ttl)
	if b.fault == "expired claims are renewed" && errors.Is(err, once.ErrLost) {
		return ttl, nil
	}
	return remaining, err
}

func (b *faulty) End(ctx context.Context, c once.Claim, s once.State) error {
	b.mu.Lock()
	b.ended++
	again := b.ended > 1
	for _, claim := range b.claims {
		if b.fault == "ends go by the node" && claim.Tick.Equal(c.Tick) && claim.Node == c.Node {
			c = claim
		}
	}
	b.mu.Unlock()
	switch b.fault {
	case "ends are not recorded":
		return nil
	case "failed runs are run again", "failed runs are repeated":
		if s == once.Failed {
			s = once.Open
		}
	case "nothing is given back":
		if s == once.Open {
			s = once.Failed
		}
	case "an end works once":
		if again {
			return &once.LostError{Job: c.Job, Tick: c.Tick}
		}
	case "the end of an expired claim is refused":
		if records, err := b.Look(ctx, c.Job, c.Tick, c.Tick); err != nil || len(records) == 0 || records[0].State == once.Open {
			return &once.LostError{Job: c.Job, Tick: c.Tick}
		}
	}
	err := b.Store.End(ctx, c, s)
	if b.fault == "losses at the end are not told" && errors.Is(err, once.ErrLost) {
		return nil
	}
	return err
}

func (b *faulty) Look(ctx context.Context, job string, from, to time.Time) ([]once.Record, error) {
	if b.fault == "the last tick is not shown" {
		to = to.Add(-time.Microsecond)
	}
	records, err := b.Store.Look(ctx, job, from, to)
	switch b.fault {
	case "ticks are in no order":
		slices.Reverse(records)
	case "jobs go by their prefix":
		more, _ := b.Store.Look(ctx, job+"2", from, to)
		records = append(records, more...)
	case "open ticks are shown as run":
		for i := range records {
			records[i].State = once.Ran
		}
	case "a job that never ran is shown":
		records = append(records, once.Record{Job: job, Tick: from})
	}
	return records, err
}

func (b *faulty) Keeps() time.Duration {
	if b.fault == "it forgets at once" {
		return 0
	}
	return b.Store.Keeps()
}

func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	broken.Run(t, func(t *testing.T, fault string) {
		t.Helper()
		oncetest.Run(t, oncetest.Harness{New: func(*testing.T) once.Store {
			return &faulty{Store: leased.New(leasetest.NewStore()), fault: fault, both: make(chan once.Claim)}
		}})
	}, map[string]string{
		"everybody gets it":                      "a tick is claimed by one node",
		"the holder is not told":                 "a tick is claimed by one node",
		"ticks are whole seconds":                "ticks and jobs are claimed",
		"a tick that died is stuck":              "a tick that died is claimed",
		"tokens begin again":                     "a tick that died is claimed",
		"renewals do nothing":                    "a renewal keeps a claim",
		"windows are ignored":                    "a tick is refused",
		"early ticks are run":                    "a tick is refused",
		"requests are not checked":               "a request that is invalid",
		"two that claim at once get it":          "of many that claim at once",
		"an ended ctx is ignored":                "a call whose ctx has ended",
		"ends are not recorded":                  "a tick that was run is not run",
		"failed runs are run again":              "a tick that was run is not run",
		"an end works once":                      "a tick that was run is not run",
		"tokens begin again after an end":        "a tick that was given back",
		"the end of an expired claim is refused": "a run that outlived its claim",
		"expired claims are renewed":             "a claim that expired",
		"losses at the end are not told":         "what has ended one way",
		"ends go by the node":                    "only the claim ends a run",
		"ticks are in no order":                  "what is known of ticks",
		"the last tick is not shown":             "what is known of ticks",
		"jobs go by their prefix":                "what is known of ticks",
		"a job that never ran is shown":          "nothing is known of a job",
		"it forgets at once":                     "a store says for how long",
		"two runners at once get it":             "many runners run each tick",
		"runs are not renewed":                   "a run that lasts longer",
		"waiters are stuck":                      "a waiting runner gets the tick",
		"failed runs are repeated":               "a run that failed is repeated",
		"nothing is given back":                  "a run that its ctx cut short",
		"open ticks are shown as run":            "missed ticks are those",
	})
}
