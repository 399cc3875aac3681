package rules_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func request(ttl time.Duration) lease.AcquireRequest {
	return lease.AcquireRequest{Name: "job", Holder: "a", TTL: ttl}
}

func acquire(t *testing.T, row rules.Row, now time.Time, r lease.AcquireRequest) rules.Row {
	t.Helper()
	next, l, err := rules.Acquire(row, 0, now, r, rules.NewID())
	require.NoError(t, err)
	require.Equal(t, next.Claim, l.Claim)
	return next
}

func TestATokenIsAboveTheRowAndTheFloor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ token, version, floor, next uint64 }{
		{0, 0, 0, 1}, {0, 0, 41, 42}, {7, 9, 0, 8}, {7, 9, 20, 21}, {30, 31, 20, 31},
	} {
		row := rules.Row{Claim: lease.Claim{Token: c.token}, Version: c.version, ReleasedAt: start}
		next, l, err := rules.Acquire(row, c.floor, start, request(time.Second), "id")
		require.NoError(t, err)
		assert.Equal(t, c.next, l.Token)
		assert.Greater(t, next.Version, max(c.version, c.floor))
	}
}

func TestTheProofOfAReleaseDependsOnEveryPart(t *testing.T) {
	t.Parallel()
	seen := make(map[string]lease.ReleaseRequest)
	for _, r := range []lease.ReleaseRequest{
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "cd", Token: 1}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "a", ID: "bcd", Token: 1}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "abcd", ID: "", Token: 1}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "cde", Token: 1}, IdempotencyKey: "f"},
		{Claim: lease.Claim{Name: "job", Holder: "cd", ID: "ab", Token: 1}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "ef", Token: 1}, IdempotencyKey: "cd"},
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "cd", Token: 2}, IdempotencyKey: "ef"},
		{Claim: lease.Claim{Name: "job", Holder: "ab", ID: "cd", Token: 256}, IdempotencyKey: "ef"},
	} {
		proof := rules.ReleaseProof(r)
		require.Equal(t, proof, rules.ReleaseProof(r))
		require.NotContains(t, seen, proof, "%+v and %+v", r, seen[proof])
		seen[proof] = r
		r.IdempotencyKey = ""
		require.Empty(t, rules.ReleaseProof(r))
	}
}

func TestTokensThatAreUsedUpAreAnError(t *testing.T) {
	t.Parallel()
	_, _, err := rules.Acquire(rules.Row{}, lease.MaxToken, start, request(time.Second), "id")
	require.Error(t, err)
	_, l, err := rules.Acquire(rules.Row{}, lease.MaxToken-1, start, request(time.Second), "id")
	require.NoError(t, err)
	require.EqualValues(t, lease.MaxToken, l.Token)
}

func TestALeaseHasExpiredAtTheMomentWhenItExpires(t *testing.T) {
	t.Parallel()
	row := acquire(t, rules.Row{}, start, request(time.Second))
	end := start.Add(time.Second)
	assert.Equal(t, lease.Held, row.State(end.Add(-1)))
	assert.Equal(t, lease.Expired, row.State(end))
	assert.Equal(t, time.Nanosecond, row.Record(end.Add(-1)).Remaining)
	assert.Zero(t, row.Record(end).Remaining)
	_, _, err := rules.Renew(row, end, lease.RenewRequest{Claim: row.Claim, TTL: time.Second})
	require.ErrorIs(t, err, lease.ErrExpired)
	_, err = rules.Release(row, end, lease.ReleaseRequest{Claim: row.Claim})
	require.ErrorIs(t, err, lease.ErrExpired)
	_, err = rules.Release(row, end.Add(-1), lease.ReleaseRequest{Claim: row.Claim})
	require.NoError(t, err)
	_, _, err = rules.Acquire(row, 0, end.Add(-1), request(time.Second), "id")
	require.ErrorIs(t, err, lease.ErrHeld)
	_, _, err = rules.Acquire(row, 0, end, request(time.Second), "id")
	require.NoError(t, err)
}

func TestAnIdempotentAcquisitionChangesNothing(t *testing.T) {
	t.Parallel()
	r := request(time.Second)
	r.IdempotencyKey = "k"
	row := acquire(t, rules.Row{}, start, r)
	next, l, err := rules.Acquire(row, 99, start.Add(time.Millisecond), r, "id")
	require.NoError(t, err)
	require.Equal(t, row, next)
	require.Equal(t, row.Lease(start.Add(time.Millisecond)), l)
	require.Equal(t, time.Second-time.Millisecond, l.Remaining)
}

func TestARefusalReturnsTheRowAsItIs(t *testing.T) {
	t.Parallel()
	row := acquire(t, rules.Row{}, start, request(time.Second))
	next, _, err := rules.Acquire(row, 0, start, request(time.Second), "id")
	require.ErrorIs(t, err, lease.ErrHeld)
	require.Equal(t, row, next)
	stale := lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 9}
	next, _, err = rules.Renew(row, start, lease.RenewRequest{Claim: stale, TTL: time.Second})
	require.ErrorIs(t, err, lease.ErrStale)
	require.Equal(t, row, next)
	next, err = rules.Release(row, start, lease.ReleaseRequest{Claim: stale})
	require.ErrorIs(t, err, lease.ErrStale)
	require.Equal(t, row, next)
}

func TestASweepCountsWhatWasTakenOver(t *testing.T) {
	t.Parallel()
	row := acquire(t, rules.Row{}, start, request(time.Second))
	now := start.Add(time.Second)
	row = acquire(t, row, now, request(time.Second))
	now = now.Add(time.Second)
	row = acquire(t, row, now, request(time.Second))
	s := rules.Sweep(row, now, time.Hour)
	require.Equal(t, 2, s.Expired)
	require.True(t, s.Changed)
	require.Equal(t, row.Version, s.Row.Version, "nothing of the lease has changed")
	s = rules.Sweep(s.Row, now.Add(time.Second), time.Hour)
	require.Equal(t, 1, s.Expired)
	require.Greater(t, s.Row.Version, row.Version)
	require.Equal(t, lease.Free, s.Row.State(now.Add(time.Second)))
	s = rules.Sweep(s.Row, now.Add(time.Hour+time.Second-1), time.Hour)
	require.False(t, s.Changed)
	require.False(t, s.Drop)
	s = rules.Sweep(s.Row, now.Add(time.Hour+time.Second), time.Hour)
	require.True(t, s.Drop)
	require.False(t, s.Changed)
}

func TestRetriesAreBoundedAndSpread(t *testing.T) {
	t.Parallel()
	for _, remaining := range []time.Duration{-time.Hour, 0, 1, time.Millisecond, 300 * time.Millisecond, time.Hour} {
		seen := map[time.Duration]bool{}
		for range 50 {
			d := rules.Retry(remaining)
			seen[d] = true
			require.GreaterOrEqual(t, d, 5*time.Millisecond)
			require.Less(t, d, max(min(remaining, time.Second), 10*time.Millisecond))
		}
		require.Greater(t, len(seen), 25)
	}
}

func TestIDsDiffer(t *testing.T) {
	t.Parallel()
	assert.NotEqual(t, rules.NewID(), rules.NewID())
}

func TestASweepStopsAfterTheTransactionInWhichItsTimeIsUp(t *testing.T) {
	t.Parallel()
	for each, transactions := range map[time.Duration]int{time.Hour: 1, 4 * time.Millisecond: 3, 0: 10} {
		synctest.Test(t, func(t *testing.T) {
			left, made := 10*32-1, 0
			result, err := rules.Transactions(lease.SweepRequest{}, 32, func(_ time.Duration, limit int, total *lease.SweepResult) (int, error) {
				bubble.Sleep(each)
				due := min(left, limit)
				left, made, total.Removed = left-due, made+1, total.Removed+due
				return due, nil
			}, func() (int, error) { return 7, nil })
			require.NoError(t, err)
			assert.Equal(t, transactions, made)
			assert.Equal(t, lease.SweepResult{Held: 7, Removed: 10*32 - 1 - left, More: left > 0}, result)
		})
	}
}

// A page is read once the one before it is used up, from its last name on.
func TestAListGoesThroughPages(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 1200 {
		names = append(names, fmt.Sprintf("job-%05d", i))
	}
	names = append(names, "jobs")
	list := func(r lease.ListRequest) (got []string, reads int) {
		for record, err := range rules.List(r, func(after string, size int) (page []lease.Record, err error) {
			reads++
			for _, name := range names {
				if name > after && name >= r.Prefix && len(page) < size {
					page = append(page, lease.Record{Lease: lease.Lease{Claim: lease.Claim{Name: name}}})
				}
			}
			return page, nil
		}) {
			require.NoError(t, err)
			got = append(got, record.Name)
		}
		return got, reads
	}
	got, reads := list(lease.ListRequest{})
	assert.Equal(t, names, got)
	assert.Equal(t, 3, reads)
	got, _ = list(lease.ListRequest{Prefix: "job-"})
	assert.Equal(t, names[:1200], got)
	got, reads = list(lease.ListRequest{After: names[99], Limit: 700})
	assert.Equal(t, names[100:800], got)
	assert.Equal(t, 2, reads)
}

// A walk is one name through whatever operations a fuzzer thinks of, with all
// claims that it ever had.
type walk struct {
	t       *testing.T
	now     time.Time
	row     rules.Row
	floor   uint64
	claims  []lease.Claim
	last    lease.ReleaseRequest // with a key, that ended a lease; zero = none that the row can know
	token   uint64               // the greatest yet
	version uint64
	granted int
	ended   int // released
	counted int
}

// FuzzRules checks the invariants after every step, each made of two bytes.
func FuzzRules(f *testing.F) {
	f.Add([]byte{0, 3, 3, 0, 5, 9, 0, 3, 2, 0})
	f.Add([]byte{0, 3, 5, 200, 4, 0, 0, 255, 5, 255, 4, 0, 0, 0, 3, 1})
	f.Add([]byte{1, 3, 1, 3, 3, 0, 1, 3, 5, 90, 1, 3, 4, 0, 2, 0, 3, 0})
	f.Add([]byte{0, 3, 3, 128, 0, 3, 3, 129, 3, 193, 3, 1, 3, 192, 3, 129, 0, 3, 3, 193}) // keys of releases
	f.Fuzz(func(t *testing.T, steps []byte) {
		w := &walk{t: t, now: start}
		for ; len(steps) >= 2; steps = steps[2:] {
			w.step(steps[0]%6, steps[1])
		}
		w.now = w.now.Add(2 * lease.MaxTTL)
		w.sweep(0)
		require.Equal(t, w.granted-w.ended, w.counted, "each lease is released or counted as expired")
	})
}

func (w *walk) step(verb, arg byte) {
	before, state := w.row, w.row.State(w.now)
	switch verb {
	case 0, 1:
		w.acquire(verb == 1, arg, state)
	case 2:
		w.renew(arg)
	case 3:
		w.release(arg)
	case 4:
		w.sweep(time.Duration(arg) * time.Second)
	default:
		w.now = w.now.Add(time.Duration(arg) * 100 * time.Millisecond)
		return
	}
	if w.row.Token != 0 {
		require.GreaterOrEqual(w.t, w.row.Version, w.row.Token)
		require.GreaterOrEqual(w.t, w.row.Version, w.version)
		w.version = w.row.Version
	}
	if before.Version == w.row.Version && w.row.Token != 0 {
		after := w.row
		after.Uncounted = before.Uncounted
		require.Equal(w.t, before, after, "a change without a version")
	}
}

func (w *walk) acquire(again bool, arg byte, state lease.State) {
	r := lease.AcquireRequest{
		Name: "job", Holder: string(rune('a' + arg%2)), TTL: time.Duration(1+arg%8) * time.Second,
		LockDelay: time.Duration(arg>>3%4) * time.Second, MinHold: time.Duration(arg>>5%4) * time.Second, MaxLifetime: time.Duration(arg>>6) * time.Second,
	}
	if again {
		r.IdempotencyKey = "key"
	}
	available := w.row.AvailableAt()
	next, l, err := rules.Acquire(w.row, w.floor, w.now, r, rules.NewID())
	switch {
	case err != nil:
		require.ErrorIs(w.t, err, lease.ErrHeld)
		require.True(w.t, w.now.Before(available))
	case next.Version == w.row.Version:
		require.True(w.t, again)
		require.Equal(w.t, lease.Held, state)
	default:
		require.NotEqual(w.t, lease.Held, state, "two leases")
		require.False(w.t, w.now.Before(available))
		require.Greater(w.t, l.Token, w.token)
		require.Greater(w.t, next.Version, w.version)
		require.Positive(w.t, l.Remaining)
		w.token = l.Token
		w.claims = append(w.claims, l.Claim)
		w.granted++
	}
	w.row = next
}

// claim is one of those that the name had; current reports whether it is the last.
func (w *walk) claim(arg byte) (c lease.Claim, current bool) {
	if len(w.claims) == 0 {
		return lease.Claim{Name: "job", Holder: "a", ID: "x", Token: 1}, false
	}
	i := len(w.claims) - 1 - int(arg)%min(len(w.claims), 3)
	return w.claims[i], i == len(w.claims)-1 && w.row.Token != 0
}

func (w *walk) renew(arg byte) {
	c, current := w.claim(arg)
	held := w.row.State(w.now) == lease.Held
	next, l, err := rules.Renew(w.row, w.now, lease.RenewRequest{Claim: c, TTL: time.Duration(1+arg%8) * time.Second})
	require.Equal(w.t, current && held, err == nil, "%v", err)
	if err == nil {
		require.False(w.t, l.ExpiresAt.Before(w.row.ExpiresAt))
		require.Greater(w.t, next.Version, w.row.Version)
	}
	w.row = next
}

func (w *walk) release(arg byte) {
	c, current := w.claim(arg)
	r := lease.ReleaseRequest{Claim: c, IdempotencyKey: [...]string{"", "", "1", "2"}[arg>>6]}
	held, released := w.row.State(w.now) == lease.Held, !w.row.ReleasedAt.IsZero()
	again := r.IdempotencyKey != "" && r == w.last
	next, err := rules.Release(w.row, w.now, r)
	require.Equal(w.t, current && (held || released) || again, err == nil, "%v", err)
	switch {
	case err != nil || !current || !held:
		require.Equal(w.t, w.row, next)
	case r.IdempotencyKey != "":
		w.last = r
		fallthrough
	default:
		w.ended++
	}
	w.row = next
}

func (w *walk) sweep(retention time.Duration) {
	s := rules.Sweep(w.row, w.now, retention)
	w.counted += s.Expired
	switch {
	case s.Drop:
		require.NotEqual(w.t, lease.Held, w.row.State(w.now))
		require.False(w.t, w.now.Before(w.row.AvailableAt()), "a delay was dropped")
		w.floor = max(w.floor, s.Row.Version)
		w.version = max(w.version, s.Row.Version)
		w.row, w.last = rules.Row{}, lease.ReleaseRequest{}
	case s.Changed:
		w.row = s.Row
	default:
		require.Equal(w.t, w.row, s.Row)
	}
}
