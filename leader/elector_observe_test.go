package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// newNode is an Elector on the election, which is stopped at the end of the test.
func newNode(t *testing.T, backend leader.Backend, identity string) *leader.Elector {
	t.Helper()
	return newNodeOf(t, leader.Config{Backend: backend, Identity: identity})
}

func newNodeOf(t *testing.T, config leader.Config) *leader.Elector {
	t.Helper()
	config.Name, config.Retry = "test", backoff.Fixed{Jitter: -1}
	e, err := leader.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	return e
}

// newWatcher is a node, and the new leaders that it reports.
func newWatcher(t *testing.T, backend leader.Backend, identity string) (*leader.Elector, *[]string) {
	t.Helper()
	seen := new([]string)
	return newNodeOf(t, leader.Config{Backend: backend, Identity: identity, Callbacks: leader.Callbacks{
		OnNewLeader: func(h leader.Holder) { *seen = append(*seen, h.Identity+" "+h.Term.String()) },
	}}), seen
}

func TestEachNodeHearsOfEachNewLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a, seenByA := newWatcher(t, election.Backend(), "a")
		b, seenByB := newWatcher(t, election.Backend(), "b")
		_, ok, at := b.LeaderSeen()
		assert.False(t, ok)
		assert.Zero(t, at, "it has not looked yet")
		require.NoError(t, a.Start(t.Context()))
		require.NoError(t, a.WaitForLeadership(t.Context()))
		require.NoError(t, b.Start(t.Context()))
		synctest.Wait()
		for _, e := range []*leader.Elector{a, b} {
			h, ok, at := e.LeaderSeen()
			require.True(t, ok)
			assert.Equal(t, "a", h.Identity)
			assert.Equal(t, leader.Term{Era: 1, N: 1}, h.Term)
			assert.Zero(t, time.Since(at))
		}
		bubble.Sleep(time.Minute) // in which nothing new is reported
		require.NoError(t, a.StepDown(t.Context()))
		require.NoError(t, b.WaitForLeadership(t.Context()))
		_, ok, at = a.LeaderSeen()
		assert.False(t, ok, "it gave leadership up, and has not looked since")
		assert.Zero(t, time.Since(at))
		bubble.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		h, ok, _ := a.LeaderSeen()
		require.True(t, ok)
		assert.Equal(t, "b", h.Identity)
		assert.Equal(t, []string{"a 1.1", "b 1.2"}, *seenByA)
		assert.Equal(t, []string{"a 1.1", "b 1.2"}, *seenByB)
	})
}

func TestWhatAFollowerHasSeenIsNoOlderThanTwoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		election.Steal("x", time.Hour)
		backend := election.Backend()
		e := newNode(t, backend, "a")
		e.LeaderSeen()
		require.NoError(t, e.Start(t.Context()))
		for range 100 {
			bubble.Sleep(311 * time.Millisecond)
			synctest.Wait()
			h, ok, at := e.LeaderSeen()
			require.True(t, ok)
			assert.Equal(t, "x", h.Identity)
			assert.LessOrEqual(t, time.Since(at), retryInterval)
		}
		election.Steal("y", time.Hour) // the identity changes while it follows
		bubble.Sleep(retryInterval)
		synctest.Wait()
		h, _, _ := e.LeaderSeen()
		assert.Equal(t, "y", h.Identity)

		backend.SetUnavailable(errBroken)
		bubble.Sleep(time.Minute)
		h, ok, at := e.LeaderSeen()
		assert.True(t, ok)
		assert.Equal(t, "y", h.Identity, "what was seen before stays")
		assert.Greater(t, time.Since(at), 50*time.Second, "and its age says so")
	})
}

func TestALeaderKnowsOfItselfFromItsLastRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newNode(t, leadertest.NewElection().Backend(), "a")
		require.NoError(t, e.Start(t.Context()))
		require.NoError(t, e.WaitForLeadership(t.Context()))
		bubble.Sleep(17 * time.Second) // a renewal each 5 s
		synctest.Wait()
		h, ok, at := e.LeaderSeen()
		require.True(t, ok)
		assert.Equal(t, "a", h.Identity)
		assert.Equal(t, 2*time.Second, time.Since(at))
	})
}

// retryInterval is that of the default strategy.
const retryInterval = 2 * time.Second

// counting counts who asks for the leader.
type counting struct {
	*leadertest.Backend
	looks int
}

func (c *counting) Leader(ctx context.Context) (leader.Holder, bool, error) {
	c.looks++
	return c.Backend.Leader(ctx)
}

func TestNobodyLooksForTheLeaderUnlessSomebodyWantsToKnow(t *testing.T) {
	t.Parallel()
	for _, wanted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			election := leadertest.NewElection()
			election.Steal("x", time.Hour)
			backend := &counting{Backend: election.Backend()}
			config := leader.Config{Backend: backend, Identity: "a"}
			if wanted {
				config.Callbacks.OnNewLeader = func(leader.Holder) {}
			}
			e := newNodeOf(t, config)
			require.NoError(t, e.Start(t.Context()))
			bubble.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, wanted, backend.looks > 0)
		})
	}
}

func TestANodeThatStepsDownStandsAsideOnlyForAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		other   bool
		backend func(*leadertest.Backend) leader.Backend
		leads   bool // again within a second
	}{
		{"alone", false, func(b *leadertest.Backend) leader.Backend { return b }, true},
		{"beside another", true, func(b *leadertest.Backend) leader.Backend { return b }, false},
		{"alone, and the backend does not know it", false, func(b *leadertest.Backend) leader.Backend {
			return struct {
				leader.Backend
				driver.Termer
			}{b, b}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				election := leadertest.NewElection()
				a := newNode(t, c.backend(election.Backend()), "a")
				require.NoError(t, a.Start(t.Context()))
				require.NoError(t, a.WaitForLeadership(t.Context()))
				b := newNode(t, election.Backend(), "b")
				if c.other {
					require.NoError(t, b.Start(t.Context()))
					synctest.Wait()
				}
				require.NoError(t, a.StepDown(t.Context()))
				require.False(t, a.IsLeader())
				bubble.Sleep(time.Second)
				synctest.Wait()
				assert.Equal(t, c.leads, a.IsLeader())
				assert.Equal(t, c.other, b.IsLeader())
				bubble.Sleep(1100 * time.Millisecond)
				synctest.Wait()
				assert.Equal(t, !c.other, a.IsLeader(), "nobody else wanted to")
			})
		})
	}
}

// shown is a backend that shows its candidate.
type shown struct {
	*leadertest.Backend
	candidate driver.Candidate
}

func (s *shown) Introspect(c driver.Candidate) func() {
	s.candidate = c
	return func() {}
}

// A troupe is the candidates of one election in memory.
type troupe struct {
	t        *testing.T
	election *leadertest.Election
	backends map[string]*shown
	electors map[string]*leader.Elector
}

// newTroupe starts candidates, of which the first leads and the others wait.
func newTroupe(t *testing.T, identities ...string) *troupe {
	t.Helper()
	r := &troupe{t, leadertest.NewElection(), make(map[string]*shown), make(map[string]*leader.Elector)}
	for _, identity := range identities {
		b := &shown{Backend: r.election.Backend()}
		e, err := leader.New(leader.Config{Name: "scheduler", Backend: b, Identity: identity})
		require.NoError(t, err)
		require.NoError(t, e.Start(t.Context()))
		t.Cleanup(func() { assert.NoError(t, e.Shutdown(context.Background())) })
		r.backends[identity], r.electors[identity] = b, e
		synctest.Wait()
	}
	require.True(t, r.electors[identities[0]].IsLeader())
	return r
}

// standBack has candidates stand back for another.
func (r *troupe) standBack(to string, candidates ...string) {
	for _, c := range candidates {
		r.backends[c].candidate.StandBack(to)
	}
	synctest.Wait()
	for _, c := range candidates {
		require.Equal(r.t, c != to, r.backends[c].candidate.Standing().StandsBack, c)
	}
}

// succeeds returns how long it takes until another leads than the one that did, and who that is.
func (r *troupe) succeeds(before string) (after time.Duration, who string) {
	r.t.Helper()
	for began := time.Now(); ; bubble.Sleep(time.Millisecond) {
		if h, ok := r.election.Leader(); ok && h.Identity != before {
			return time.Since(began), h.Identity
		}
		require.Less(r.t, time.Since(began), time.Minute)
	}
}

// soon is how long it may take to see that a candidate does not come.
const soon = 700 * time.Millisecond

func TestTheCandidateThatIsPreferredLeadsNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTroupe(t, "a", "b", "c", "d")
		r.standBack("d", "b", "c", "d")
		go func() { assert.NoError(t, r.electors["a"].StepDown(t.Context())) }()
		after, who := r.succeeds("a")
		assert.Equal(t, "d", who)
		assert.LessOrEqual(t, after, soon)
		bubble.Sleep(time.Second)
		assert.False(t, r.backends["b"].candidate.Standing().StandsBack, "once it leads nobody stands back")
	})
}

// On a busy machine it can be long between two waits of a candidate.
func TestTheCandidateThatIsPreferredMayBeBetweenTwoWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTroupe(t, "a", "b", "c", "d")
		r.standBack("d", "b", "c", "d")
		r.backends["d"].Cut()
		go func() { assert.NoError(t, r.electors["a"].StepDown(t.Context())) }()
		bubble.Sleep(400 * time.Millisecond)
		_, led := r.election.Leader()
		assert.False(t, led, "the others wait for it")
		r.backends["d"].Heal()
		_, who := r.succeeds("a")
		assert.Equal(t, "d", who)
	})
}

func TestNobodyStandsBackForACandidateThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *troupe){
		"the leader resigns": func(r *troupe) { r.backends["a"].candidate.Resign() },
		"the leader is killed": func(r *troupe) {
			r.backends["a"].Cut() // what is left of it does not come back
			r.election.Kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newTroupe(t, "a", "b", "c")
				r.standBack("away", "b", "c")
				end(r)
				after, who := r.succeeds("a")
				assert.NotEqual(t, "a", who)
				assert.LessOrEqual(t, after, soon)
				r.backends["a"].Heal()
			})
		})
	}
}

func TestNobodyStandsBackAnyMoreWhenAnotherTermHasBegun(t *testing.T) {
	t.Parallel()
	for name, identity := range map[string]string{"another leads": "z", "the same leads again": "a"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newTroupe(t, "a", "b")
				r.standBack("away", "b")
				bubble.Sleep(5 * time.Second)
				assert.True(t, r.backends["b"].candidate.Standing().StandsBack, "the leader has not gone")
				r.election.Steal(identity, time.Minute)
				bubble.Sleep(soon)
				assert.False(t, r.backends["b"].candidate.Standing().StandsBack)
			})
		})
	}
}
