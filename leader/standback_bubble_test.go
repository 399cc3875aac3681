package leader_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
)

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
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
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
		time.Sleep(time.Second)
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
		time.Sleep(400 * time.Millisecond)
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
				time.Sleep(5 * time.Second)
				assert.True(t, r.backends["b"].candidate.Standing().StandsBack, "the leader has not gone")
				r.election.Steal(identity, time.Minute)
				time.Sleep(soon)
				assert.False(t, r.backends["b"].candidate.Standing().StandsBack)
			})
		})
	}
}
