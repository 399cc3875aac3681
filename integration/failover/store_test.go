//go:build integration

package failover

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/leaseload"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/postgres"
)

// enough leases are granted before and after a promotion.
const enough = 300

// era is the distance of tokens from one era to the next.
const era = 1 << 40

func newStore(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	store, err := postgres.New(postgres.Config{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// clients is how many work at once.
const clients = 6

// longTTL outlives a fail-over, so that what is forgotten of such a lease is noticed.
const longTTL = leaseload.KeptTTL

func startLoad(t *testing.T, stores ...lease.Store) *leaseload.Load {
	t.Helper()
	return startTraced(t, nil, stores...)
}

// startTraced is startLoad with all calls in a run.
func startTraced(t *testing.T, run *replay.Run, stores ...lease.Store) *leaseload.Load {
	t.Helper()
	return leaseload.Start(t, leaseload.Config{Stores: stores, Prefix: "shared", TTL: 200 * time.Millisecond, Trace: run.Writer()})
}

func stores(t *testing.T, dsn string) (all []lease.Store) {
	t.Helper()
	for range clients {
		all = append(all, newStore(t, dsn))
	}
	return all
}

// overFailOver works on a pair whose primary is killed under load, until the standby
// serves, and tells how long that took.
func overFailOver(t *testing.T, p *pair, l *leaseload.Load, before func()) {
	t.Helper()
	l.Await(enough)
	before()
	killed, promoted := p.failOver()
	atPromotion := l.Granted()
	l.Await(1)
	served := time.Now()
	tally.Faults(t, tally.Fault{Name: "standby promoted", Times: 1, Freed: served.Sub(killed)})
	l.Await(enough)
	l.Stop()
	t.Logf("granted before %d, after %d; the standby took writes %v after the kill, and the first lease was granted %v after that; %+v",
		atPromotion, l.Granted()-atPromotion, promoted.Sub(killed).Round(time.Millisecond), served.Sub(promoted).Round(time.Millisecond), l.History.Counts())
}

func TestNoAcknowledgedLeaseIsLostWhenASynchronousStandbyIsPromotedUnderLoad(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"remote_apply", "on"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, mode)
			run := replay.Start(t, "leases")
			l := startTraced(t, run, stores(t, p.dsn())...)
			overFailOver(t, p, l, func() {})
			l.RequireLegal(t.Context())
			run.RequireLegal(trace.LeaseAcquire, trace.LeaseRenew, trace.LeaseRelease)
		})
	}
}

// The control: the same with a standby that is some commits behind. Tokens rise all the same.
func TestTheLastLeasesAreLostWhenAnAsynchronousStandbyIsPromotedUnderLoad(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	run := replay.Start(t, "leases")
	l := startTraced(t, run, stores(t, p.dsn())...)
	overFailOver(t, p, l, func() {
		p.caughtUp() // with what was kept until now
		p.stopStreaming()
		l.Await(enough)
	})
	lost, kept := l.RenewKept(t.Context()), l.Kept()
	t.Logf("%d leases of %d that were kept are lost", lost, len(kept))
	tally.Control(t, "%d of %d acknowledged leases are lost", lost, len(kept))
	assert.Positive(t, lost)
	assert.Less(t, lost, len(kept), "what the standby had is there")
	require.ErrorIs(t, l.History.Check(soak.Size(t, time.Minute, 10*time.Minute)), leasetest.ErrIllegal)
	run.RequireRefused()
	greatest := make(map[uint64]uint64) // of each era
	for _, k := range kept {
		greatest[k.Token/era] = max(greatest[k.Token/era], k.Token%era)
	}
	assert.Len(t, greatest, 2, "one promotion begins one era")
}

// A ledger is what clients were told before an asynchronous standby took over that had missed the end.
type ledger struct {
	known    lease.Claim    // the standby has it
	missed   lease.Claim    // granted since
	released lease.Claim    // its release was acknowledged since
	renewed  lease.Claim    // prolonged since, from brief to longTTL
	tokens   [2]lease.Lease // the first and the last on one name
	again    lease.AcquireRequest
}

// brief is the TTL of a lease whose renewal is forgotten.
const brief = 30 * time.Second

// behind brings a pair to a fail-over to a standby that misses what is acknowledged last.
func behind(t *testing.T, p *pair) (s *postgres.Store, told ledger) {
	t.Helper()
	s = newStore(t, p.dsn())
	acquire := func(name string, ttl time.Duration) lease.Claim {
		l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "a", TTL: ttl})
		require.NoError(t, err)
		return l.Claim
	}
	turn := func() lease.Lease {
		l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "turns", Holder: "a", TTL: longTTL})
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context(), l.Claim))
		return l
	}
	told.known, told.released, told.renewed = acquire("known", longTTL), acquire("released", longTTL), acquire("renewed", brief)
	told.tokens[0] = turn()
	p.caughtUp()
	p.stopStreaming()
	told.again = lease.AcquireRequest{Name: "missed", Holder: "a", TTL: longTTL, IdempotencyKey: "once"}
	l, err := s.Acquire(t.Context(), told.again)
	require.NoError(t, err)
	told.missed = l.Claim
	require.NoError(t, s.Release(t.Context(), told.released))
	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: told.renewed, TTL: longTTL})
	require.NoError(t, err)
	for range 5 {
		told.tokens[1] = turn()
	}
	p.failOver()
	return s, told
}

// after is s.Acquire once a server is there for it.
func after(t *testing.T, s lease.Store, r lease.AcquireRequest) (l lease.Lease) {
	t.Helper()
	await.Until(t, patience, func() bool {
		var err error
		l, err = s.Acquire(t.Context(), r)
		return err == nil
	})
	return l
}

func TestAnAsynchronousStandbyForgetsGrantsRenewalsAndReleasesAndNoToken(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	s, told := behind(t, p)
	turn := after(t, s, lease.AcquireRequest{Name: "turns", Holder: "b", TTL: longTTL})
	assert.Greater(t, turn.Token, told.tokens[1].Token, "tokens rise over those that the standby had missed")
	assert.Equal(t, told.tokens[0].Token/era+1, turn.Token/era)
	assert.LessOrEqual(t, turn.Token%era, told.tokens[1].Token%era, "the control: without an era it would be no greater")

	_, err := s.Renew(t.Context(), lease.RenewRequest{Claim: told.known, TTL: longTTL})
	require.NoError(t, err, "what the standby had goes on with its claim and token")

	_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: told.missed, TTL: longTTL})
	require.ErrorIs(t, err, lease.ErrNotFound, "a grant is forgotten")
	other, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "missed", Holder: "b", TTL: longTTL})
	require.NoError(t, err, "and the name granted again, while its holder trusts it")
	assert.Greater(t, other.Token, told.missed.Token)
	_, err = s.Acquire(t.Context(), told.again)
	require.ErrorIs(t, err, lease.ErrHeld, "an idempotency key does not bring it back")

	record, err := s.Get(t.Context(), "released")
	require.NoError(t, err)
	assert.Equal(t, lease.Held, record.State, "a release is forgotten")
	require.NoError(t, s.Release(t.Context(), told.released), "and can be said again")

	record, err = s.Get(t.Context(), "renewed")
	require.NoError(t, err)
	assert.LessOrEqual(t, record.Remaining, brief, "a renewal is forgotten: the lease ends when it did before")
}

// The control: without eras the standby counts the tokens again that it had missed.
func TestWithoutErasTokensRepeatAfterThePromotion(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	p.eraOff()
	s, told := behind(t, p)
	turn := after(t, s, lease.AcquireRequest{Name: "turns", Holder: "b", TTL: longTTL})
	assert.LessOrEqual(t, turn.Token, told.tokens[1].Token)
}

func TestAPrimaryThatIsCutOffFromItsSynchronousStandbyAcknowledgesNothingMore(t *testing.T) {
	t.Parallel()
	p := newPair(t, "remote_apply")
	old, onStandby := newStore(t, p.primary.DSN("")), newStore(t, p.standby.DSN(""))
	held, err := old.Acquire(t.Context(), lease.AcquireRequest{Name: "held", Holder: "a", TTL: longTTL})
	require.NoError(t, err)
	p.promote() // with the primary running, as behind a partition
	for name, ask := range map[string]func(ctx context.Context, s lease.Store) error{
		"acquire": func(ctx context.Context, s lease.Store) error {
			_, err := s.Acquire(ctx, lease.AcquireRequest{Name: "other", Holder: "a", TTL: longTTL})
			return err
		},
		"renew": func(ctx context.Context, s lease.Store) error {
			_, err := s.Renew(ctx, lease.RenewRequest{Claim: held.Claim, TTL: longTTL})
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() { answered <- ask(ctx, newStore(t, p.primary.DSN("")+"&application_name="+name)) }()
		p.eventually(p.primary, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = '"+name+"')")
		cancel()
		err := <-answered
		require.ErrorIs(t, err, context.Canceled, name)
		assert.NotErrorIs(t, err, lease.ErrBusy, "%s: its outcome is unknown", name)
	}
	l, err := onStandby.Acquire(t.Context(), lease.AcquireRequest{Name: "other", Holder: "b", TTL: longTTL})
	require.NoError(t, err)
	assert.Positive(t, l.Token/era)
	_, err = onStandby.Acquire(t.Context(), lease.AcquireRequest{Name: "held", Holder: "b", TTL: longTTL})
	require.ErrorIs(t, err, lease.ErrHeld)
}

// The control: without a synchronous standby both grant, each to another.
func TestAPrimaryThatIsCutOffFromAnAsynchronousStandbyGoesOnGranting(t *testing.T) {
	t.Parallel()
	p := newPair(t, "")
	old, onStandby := newStore(t, p.primary.DSN("")), newStore(t, p.standby.DSN(""))
	p.promote()
	one, err := old.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "a", TTL: longTTL})
	require.NoError(t, err)
	two, err := onStandby.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "b", TTL: longTTL})
	require.NoError(t, err)
	assert.Greater(t, two.Token, one.Token, "tokens tell who is the later")
}

// What package postgres says that it does not guarantee.
func TestAnOperationThatIsCancelledWhileItWaitsForTheStandbyIsAcknowledged(t *testing.T) {
	t.Parallel()
	p := newPair(t, "on")
	s := newStore(t, p.primary.DSN(""))
	p.stopStreaming()
	granted := make(chan error, 1)
	go func() {
		_, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "x", Holder: "a", TTL: longTTL})
		granted <- err
	}()
	p.eventually(p.primary, "SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	require.NoError(t, await.Receive(t, patience, granted, "it waits on"))
	p.failOver()
	_, err := newStore(t, p.standby.DSN("")).Get(t.Context(), "x")
	require.ErrorIs(t, err, lease.ErrNotFound)
}

func TestARetryOfAnAcquireThatWaitedForTheStandbyIsNotAcknowledgedBeforeTheStandbyHasIt(t *testing.T) {
	t.Parallel()
	p := newPair(t, "on")
	s := newStore(t, p.primary.DSN(""))
	p.stopStreaming()
	r := lease.AcquireRequest{Name: "x", Holder: "a", TTL: longTTL, IdempotencyKey: "once"}
	for i := range 10 { // as a client whose requests have a timeout
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		l, err := s.Acquire(ctx, r)
		cancel()
		if err == nil {
			p.failOver()
			_, err = newStore(t, p.standby.DSN("")).Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: longTTL})
			require.NoError(t, err, "acknowledged at attempt %d, and lost", i+1)
		}
	}
}
