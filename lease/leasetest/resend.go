package leasetest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// releaseKeyed releases with a key, or skips the case if the store keeps none.
func (s *suite) releaseKeyed(c lease.Claim, key string) error {
	s.Helper()
	return capability[lease.KeyedReleaser](s, s.store).ReleaseKeyed(s.Context(), lease.ReleaseRequest{Claim: c, IdempotencyKey: key})
}

// requireNotLast checks that a release of l, which another lease has replaced, is stale with these keys.
func (s *suite) requireNotLast(l lease.Lease, keys ...string) {
	s.Helper()
	s.unchanged(func() {
		for _, key := range keys {
			require.ErrorIs(s, s.releaseKeyed(l.Claim, key), lease.ErrStale, "%q", key)
		}
	})
}

var resendCases = []testCase{
	{"resend: a release with its key succeeds again after another has the name", func(s *suite) {
		l := s.acquire(request("job", "a"))
		require.NoError(s, s.releaseKeyed(l.Claim, "once"))
		s.unchanged(func() { require.NoError(s, s.releaseKeyed(l.Claim, "once")) })
		next := s.acquire(request("job", "b"))
		again := func() { require.NoError(s, s.releaseKeyed(l.Claim, "once")) }
		s.unchanged(again)
		next = s.renew(next.Claim, 2*long)
		s.unchanged(again)
		s.release(next.Claim) // it has no key, and leaves the last one
		s.unchanged(again)
		s.acquire(request("job", "a"))
		s.unchanged(again)
		s.refused(request("job", "c"))
	}},
	{"resend: after another key or none, and with a claim that differs, it is stale as without a key", func(s *suite) {
		l := s.acquire(request("job", "a"))
		require.NoError(s, s.releaseKeyed(l.Claim, "once"))
		next := s.acquire(request("job", "b"))
		s.requireNotLast(l, "", "onc", "once ", "Once", "twice")
		requireStale(s, s.releaseKeyed(l.Claim, "twice"), lease.StaleError{Name: "job", Holder: true, ID: true, Token: true})
		requireStale(s, s.store.Release(s.Context(), l.Claim), lease.StaleError{Name: "job", Holder: true, ID: true, Token: true})
		s.unchanged(func() {
			for _, forged := range forgeries(l.Claim) {
				require.ErrorIs(s, s.releaseKeyed(forged, "once"), lease.ErrStale, "%+v", forged)
			}
			for _, forged := range forgeries(next.Claim) {
				require.ErrorIs(s, s.releaseKeyed(forged, "once"), lease.ErrStale, "%+v", forged)
			}
		})
		require.NoError(s, s.releaseKeyed(l.Claim, "once"))
	}},
	{"resend: no key, and the key of the acquire, is not that of a release", func(s *suite) {
		for _, key := range []string{"", "released"} {
			r := request("job", "a")
			r.IdempotencyKey = "acquired"
			l := s.acquire(r)
			require.NoError(s, s.releaseKeyed(l.Claim, key))
			next := s.acquire(request("job", "b"))
			s.requireNotLast(l, "", "acquired", "x")
			s.release(next.Claim)
		}
	}},
	{"resend: the next release with a key replaces the last one", func(s *suite) {
		first := s.acquire(request("job", "a"))
		require.NoError(s, s.releaseKeyed(first.Claim, "one"))
		second := s.acquire(request("job", "b"))
		require.NoError(s, s.releaseKeyed(second.Claim, "two"))
		s.acquire(request("job", "c"))
		s.requireNotLast(first, "one", "two")
		s.requireNotLast(second, "one")
		s.unchanged(func() { require.NoError(s, s.releaseKeyed(second.Claim, "two")) })
	}},
	{"resend: each name has a last release of its own", func(s *suite) {
		l, other := s.acquire(request("job", "a")), s.acquire(request("other", "a"))
		require.NoError(s, s.releaseKeyed(l.Claim, "one"))
		require.NoError(s, s.releaseKeyed(other.Claim, "two"))
		s.acquire(request("job", "b"))
		s.acquire(request("other", "b"))
		s.requireNotLast(l, "two")
		require.NoError(s, s.releaseKeyed(l.Claim, "one"))
		require.NoError(s, s.releaseKeyed(other.Claim, "two"))
	}},
	{"resend: a refused release leaves the last one", func(s *suite) {
		l := s.acquire(request("job", "a"))
		require.NoError(s, s.releaseKeyed(l.Claim, "once"))
		brief := s.acquire(s.brief("job", "b"))
		s.expire("job")
		requireExpired(s, s.releaseKeyed(brief.Claim, "late"), brief)
		s.sweep(lease.SweepRequest{})
		require.NoError(s, s.releaseKeyed(l.Claim, "once"))
		s.acquire(request("job", "c"))
		s.requireNotLast(brief, "late")
		require.NoError(s, s.releaseKeyed(l.Claim, "once"))
	}},
	{"resend: a hand-over keeps the key, and sent again it changes nothing", func(s *suite) {
		l := s.acquire(request("job", "a"))
		next := request("job", "b")
		next.IdempotencyKey = "grant"
		r := lease.ReleaseRequest{Claim: l.Claim, IdempotencyKey: "once"}
		second, released, acquired := s.handOverKeyed(r, next)
		require.NoError(s, released)
		require.NoError(s, acquired)
		s.requireNotLast(l, "", "grant")
		s.unchanged(func() {
			require.NoError(s, s.releaseKeyed(l.Claim, "once"))
			again, released, acquired := s.handOverKeyed(r, next)
			require.NoError(s, released)
			require.NoError(s, acquired)
			requireSameLease(s, second, again)
			_, released, acquired = s.handOverKeyed(r, request("job", "c"))
			require.NoError(s, released)
			require.ErrorIs(s, acquired, lease.ErrHeld)
		})
	}},
	{"resend: a sweep that forgets the name forgets the key", func(s *suite) {
		l := s.acquire(request("job", "a"))
		require.NoError(s, s.releaseKeyed(l.Claim, "once"))
		s.forget(1)
		requireNotFound(s, s.releaseKeyed(l.Claim, "once"), "job")
		s.acquire(request("job", "b"))
		s.requireNotLast(l, "once")
	}},
	{"resend: a store that was opened again knows the last release", func(s *suite) {
		if s.h.Reopen == nil {
			s.Skip("the store is not durable")
		}
		l := s.acquire(request("job", "a"))
		key := strings.Repeat("ä", lease.MaxName/2)
		require.NoError(s, s.releaseKeyed(l.Claim, key))
		s.acquire(request("job", "b"))
		s.store = s.h.Reopen(s.T, s.store)
		s.unchanged(func() { require.NoError(s, s.releaseKeyed(l.Claim, key)) })
		s.requireNotLast(l, key[:len(key)-len("ä")])
	}},
	{"resend: what is invalid is refused and changes nothing", func(s *suite) {
		l := s.acquire(request("job", "a"))
		s.unchanged(func() {
			for field, claims := range badClaims(l.Claim) {
				for _, c := range claims {
					requireInvalid(s, s.releaseKeyed(c, "once"), field)
				}
			}
			for _, key := range badTexts[1:] { // none is valid
				requireInvalid(s, s.releaseKeyed(l.Claim, key), "IdempotencyKey")
			}
		})
	}},
}
