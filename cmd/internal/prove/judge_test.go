package prove

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAWrongAnswerCountsMoreThanAMissingOne(t *testing.T) {
	t.Parallel()
	p := proof{name: "p", holds: "holds", source: "page", expects: []expectation{
		{id: "a", wrong: "a is wrong"}, {id: "b", wrong: "b is wrong"}, {id: "soft", wrong: "soft is wrong", with: true}, {id: "extra", wrong: "extra is wrong", with: true, optional: true},
	}}
	yes := func(ids ...string) map[string]bool {
		seen := map[string]bool{}
		for _, id := range ids {
			seen[id] = true
		}
		return seen
	}
	but := func(seen map[string]bool, id string) map[string]bool { seen[id] = false; return seen }
	for _, c := range []struct {
		o      observation
		status Status
		why    string
	}{
		{observation{seen: yes("a", "b", "soft")}, Works, "holds"},
		{observation{seen: yes("a", "b", "soft", "extra")}, Works, "holds"},
		{observation{seen: but(yes("a", "b", "soft"), "extra")}, WorksWith, "extra is wrong"},
		{observation{seen: but(yes("a", "b"), "soft")}, WorksWith, "soft is wrong"},
		{observation{seen: but(yes("a", "b"), "soft"), detail: map[string]string{"soft": "soft is odd"}}, WorksWith, "soft is odd"},
		{observation{seen: yes("a", "soft")}, Unknown, noAnswer},
		{observation{seen: yes("a"), doubt: "the line is dead"}, Unknown, "the line is dead"},
		{observation{seen: but(yes("a"), "soft")}, Unknown, noAnswer},
		{observation{seen: but(yes("a"), "b"), doubt: "the line is dead"}, DoesNot, "b is wrong"},
		{observation{seen: but(but(yes(), "b"), "a")}, DoesNot, "a is wrong; b is wrong"},
		{observation{}, Unknown, noAnswer},
	} {
		assert.Equal(t, Result{"p", c.status, c.why, Manual + "page"}, p.judge(c.o))
	}
}

// Without an answer no proof says that something does not work.
func TestSilenceProvesNothing(t *testing.T) {
	t.Parallel()
	for _, p := range proofs() {
		assert.Equal(t, Unknown, p.judge(observation{doubt: noAnswer}).Status, p.name)
	}
}

func TestEachExpectationDecidesItsProof(t *testing.T) {
	t.Parallel()
	for _, p := range proofs() {
		seen := map[string]bool{}
		for _, e := range p.expects {
			require.NotEmpty(t, e.wrong)
			seen[e.id] = true
		}
		require.Equal(t, Works, p.judge(observation{seen: seen}).Status)
		for _, e := range p.expects {
			seen[e.id] = false
			r := p.judge(observation{seen: seen})
			want := DoesNot
			if e.with {
				want = WorksWith
			}
			assert.Equal(t, want, r.Status, "%s %s", p.name, e.id)
			assert.Equal(t, e.wrong, r.Why, "%s %s", p.name, e.id)
			seen[e.id] = true
		}
	}
}

// results are those of a server where everything works, but for some.
func results(but map[string]Status) (all []Result) {
	for _, p := range proofs() {
		r := Result{Proof: p.name, Status: Works, Why: "why"}
		if status, ok := but[p.name]; ok {
			r.Status = status
		}
		all = append(all, r)
	}
	return all
}

func TestAPartIsJudgedByWhatItReliesOn(t *testing.T) {
	t.Parallel()
	none := map[string]Status{}
	for _, name := range []string{pooler, exclusion, sharedMode, lockTable, queue, unlock, endOfSession, terminated, lease, canceling, cancelAim, notify, samePID} {
		none[name] = DoesNot // as behind a pooler in transaction mode
	}
	type uses [6]Use
	const yes, with, unknown, no = MayBeUsed, MayBeUsedWith, NotProven, MustNotBeUsed
	for name, c := range map[string]struct {
		but  map[string]Status
		uses uses // mutex, LockTx, elections, leases, once, shards
	}{
		"PostgreSQL":       {nil, uses{yes, yes, yes, yes, yes, yes}},
		"session mode":     {map[string]Status{pooler: WorksWith}, uses{with, yes, with, yes, yes, with}},
		"transaction mode": {none, uses{no, with, no, with, yes, no}},
		"standby":          {map[string]Status{primary: DoesNot}, uses{no, no, no, no, no, no}},
		"no exclusion":     {map[string]Status{exclusion: DoesNot}, uses{no, yes, no, yes, yes, no}},
		"no answer":        {map[string]Status{exclusion: Unknown}, uses{unknown, yes, unknown, yes, yes, unknown}},
		"both":             {map[string]Status{exclusion: Unknown, unlock: DoesNot}, uses{no, yes, no, yes, yes, no}},
		"no cancel":        {map[string]Status{canceling: DoesNot}, uses{with, yes, with, yes, yes, with}},
		"wrong cancel":     {map[string]Status{cancelAim: DoesNot}, uses{no, yes, no, yes, yes, no}},
		"no rollback":      {map[string]Status{txRollback: DoesNot}, uses{yes, no, no, with, with, no}},
		"clock set":        {map[string]Status{clock: DoesNot}, uses{with, yes, with, no, no, no}},
		"clock off":        {map[string]Status{clock: WorksWith}, uses{yes, yes, yes, with, with, with}},
		"no notification":  {map[string]Status{notify: Unknown}, uses{with, yes, with, with, yes, with}},
	} {
		var got uses
		require.Len(t, parts, len(got))
		for i := range parts {
			v := parts[i].judge(results(c.but))
			got[i] = v.Use
			assert.NotEmpty(t, v.Why)
		}
		assert.Equal(t, c.uses, got, name)
	}
}

func TestAPartNeedsProofsThatExist(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, p := range proofs() {
		names[p.name] = true
	}
	for _, p := range parts {
		for _, need := range p.needs {
			assert.True(t, names[need], need)
		}
		for _, want := range p.wants {
			assert.True(t, names[want.proof], want.proof)
		}
	}
}

func TestTheServersClockIsComparedWithOurs(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(sent, received, server time.Duration) reading {
		return reading{began.Add(sent), began.Add(received), time.Duration(began.UnixNano()) + server}
	}
	const s = time.Second
	for name, c := range map[string]struct {
		readings     []reading
		steady, near bool
	}{
		"exact":                  {[]reading{at(0, 0, 0), at(s, s, s)}, true, true},
		"slow answers":           {[]reading{at(0, 0, 0), at(s, 9*s, 7*s), at(10*s, 10*s, 10*s)}, true, true},
		"only slow answers":      {[]reading{at(0, 5*s, s), at(5*s, 10*s, 9*s)}, true, true},
		"ahead":                  {[]reading{at(0, 0, 60*s), at(s, s, 61*s)}, true, false},
		"behind":                 {[]reading{at(0, 0, -60*s), at(s, s, -59*s)}, true, false},
		"set forward":            {[]reading{at(0, 0, 0), at(s, s, 2*s)}, false, true},
		"set back":               {[]reading{at(0, 0, 0), at(s, s, 10*time.Millisecond)}, false, true},
		"a small step back":      {[]reading{at(0, 0, 0), at(time.Millisecond, time.Millisecond, -50*time.Millisecond)}, false, true},
		"a tiny step back":       {[]reading{at(0, 0, 0), at(time.Millisecond, time.Millisecond, -time.Millisecond)}, true, true},
		"slewed":                 {[]reading{at(0, 0, 0), at(10*s, 10*s, 10*s+5*time.Millisecond)}, true, true},
		"set while nobody looks": {[]reading{at(0, 0, 0), at(s, 2*s, s), at(3*s, 3*s, 63*s)}, false, false},
	} {
		steady, near, step, off := judgeClock(c.readings)
		assert.Equal(t, c.steady, steady, name)
		assert.Equal(t, c.near, near, name)
		assert.Equal(t, steady, step == "", name)
		assert.Equal(t, near, off == "", name)
	}
}

func TestThePageHasEveryProofAndEveryPart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/proven-servers.md")
	require.NoError(t, err)
	for _, p := range proofs() {
		assert.Contains(t, string(page), "\n| "+p.name+" | ")
	}
	for _, p := range parts {
		assert.Contains(t, string(page), "\n| "+p.name+" | ")
	}
}
