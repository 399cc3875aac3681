package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

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
