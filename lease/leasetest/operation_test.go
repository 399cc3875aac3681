package leasetest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease/leasetest"
)

// story has two leases of a lock, one after the other, as clients of other processes tell of them.
func story() []leasetest.Operation {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return []leasetest.Operation{
		{Verb: "acquire", Lock: "x", Owner: "a", LeaseID: "1", Token: 1, Key: "k", Began: 1e6, Ended: 2e6, Outcome: "ok", AcquiredAt: at, ExpiresAt: at.Add(time.Second), RemainingMS: 1000, TrustedUntil: 900e6},
		{Verb: "acquire", Lock: "x", Owner: "b", Began: 3e6, Ended: 4e6, Outcome: "lock-held", HeldBy: "a"},
		{Verb: "renew", Lock: "x", Owner: "a", LeaseID: "1", Token: 1, Began: 5e6, Ended: 6e6, Outcome: "ok", AcquiredAt: at, ExpiresAt: at.Add(1004 * time.Millisecond), RemainingMS: 1000, TrustedUntil: 904e6},
		{Verb: "release", Lock: "x", Owner: "a", LeaseID: "1", Token: 1, Began: 7e6, Outcome: "ok"},
		{Verb: "acquire", Lock: "x", Owner: "b", LeaseID: "2", Token: 2, Began: 9e6, Ended: 10e6, Outcome: "ok", AcquiredAt: at.Add(8 * time.Millisecond), ExpiresAt: at.Add(2 * time.Second), RemainingMS: 1992, TrustedUntil: 1800e6},
	}
}

func check(t *testing.T, all []leasetest.Operation) error {
	t.Helper()
	h := leasetest.NewHistory()
	for _, o := range all {
		text, err := json.Marshal(o)
		require.NoError(t, err)
		var read leasetest.Operation
		require.NoError(t, json.Unmarshal(text, &read))
		require.NoError(t, h.Add(read))
	}
	return h.Check(checkLimit)
}

func TestOperationsOfOtherProcessesAreChecked(t *testing.T) {
	t.Parallel()
	require.NoError(t, check(t, story()))
	for name, spoil := range map[string]func(all []leasetest.Operation){
		"two trust at once":         func(all []leasetest.Operation) { all[3].Verb, all[3].Outcome, all[3].Ended = "renew", "ok", 0 },
		"a token repeats":           func(all []leasetest.Operation) { all[4].Token = 1 },
		"lost while it was trusted": func(all []leasetest.Operation) { all[2].Outcome = "lease-stale" },
		"refused by nobody's lease": func(all []leasetest.Operation) { all[1].HeldBy = "c" },
		"renewed with another's id": func(all []leasetest.Operation) { all[2].LeaseID = "2" },
		"granted while it is held":  func(all []leasetest.Operation) { all[1].Outcome, all[1].LeaseID, all[1].Token = "ok", "3", 2 },
		"sent again, and two granted": func(all []leasetest.Operation) {
			all[1].Owner, all[1].Key, all[1].Outcome, all[1].LeaseID, all[1].Token = "a", "l", "ok", "3", 2
		},
	} {
		all := story()
		spoil(all)
		require.ErrorIs(t, check(t, all), leasetest.ErrIllegal, name)
	}
}

func TestAnAcquireThatWasSentTwiceMayBeGrantedAgainLater(t *testing.T) {
	t.Parallel()
	all := story()
	all[0].Sendings = 2
	all[4] = leasetest.Operation{Verb: "acquire", Lock: "x", Owner: "b", Began: 9e6, Ended: 10e6, Outcome: "lock-held", HeldBy: "a"}
	all[3].Ended = 8e6
	require.NoError(t, check(t, all), "the sending that was not answered was granted after the release")
	all[0].Sendings = 1
	require.ErrorIs(t, check(t, all), leasetest.ErrIllegal)
}

func TestAReleaseWhoseFirstAnswerWasLostMayBeCalledStale(t *testing.T) {
	t.Parallel()
	all := story()
	all[3].Outcome, all[3].Ended = "lease-stale", 11e6
	require.ErrorIs(t, check(t, all), leasetest.ErrIllegal)
	all[3].Sendings = 2
	require.NoError(t, check(t, all))
}

func TestARenewalThatMeetsTheReleaseOfItsLeaseIsNoLoss(t *testing.T) {
	t.Parallel()
	all := story()
	all[2].Outcome, all[2].Ended, all[3].Ended = "lease-stale", 8e6, 8e6
	require.NoError(t, check(t, all))
}

func TestAnOperationThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []leasetest.Operation{{}, {Verb: "steal", Lock: "x", Began: 1}, {Verb: "renew", Began: 1}, {Verb: "renew", Lock: "x"}, {Verb: "renew", Lock: "x", Began: 2, Ended: 1}} {
		assert.Error(t, leasetest.NewHistory().Add(o))
	}
}
