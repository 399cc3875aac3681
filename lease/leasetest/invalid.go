package leasetest

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// badTexts are invalid for any text field, badNames only for names of locks.
var (
	badTexts = []string{"", strings.Repeat("n", lease.MaxName+1), "a\x00b", "a\nb", "a\x7f", "a\u0085b", "\xff", "a\xc3", "\xed\xa0\x80"}
	badNames = append(slices.Clip(badTexts), ".", "..", "../job", "a/./b", "a/..")
)

// requireInvalid checks that err names field.
func requireInvalid(s *suite, err error, field string) {
	s.Helper()
	invalid := requireAs[*lease.InvalidError](s, err, lease.ErrInvalid)
	require.Equal(s, field, invalid.Field)
	require.NotEmpty(s, invalid.Value)
	require.NotEmpty(s, invalid.Remedy)
}

// badAcquires returns requests with one bad field, by its name.
func badAcquires() map[string][]lease.AcquireRequest {
	bad := map[string][]lease.AcquireRequest{}
	add := func(field string, change func(*lease.AcquireRequest)) {
		r := request("bad", "a")
		change(&r)
		bad[field] = append(bad[field], r)
	}
	for _, name := range badNames {
		add("Name", func(r *lease.AcquireRequest) { r.Name = name })
	}
	for _, text := range badTexts {
		add("Holder", func(r *lease.AcquireRequest) { r.Holder = text })
		if text != "" {
			add("IdempotencyKey", func(r *lease.AcquireRequest) { r.IdempotencyKey = text })
		}
	}
	for _, d := range []time.Duration{0, -1, lease.MinTTL - 1, lease.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
		add("TTL", func(r *lease.AcquireRequest) { r.TTL = d })
	}
	for _, d := range []time.Duration{-1, lease.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
		add("LockDelay", func(r *lease.AcquireRequest) { r.LockDelay = d })
		add("MinHold", func(r *lease.AcquireRequest) { r.MinHold = d })
	}
	for _, d := range []time.Duration{-1, 1, lease.MinTTL - 1, lease.LongestLifetime + 1, math.MaxInt64, math.MinInt64} {
		add("MaxLifetime", func(r *lease.AcquireRequest) { r.MaxLifetime = d })
	}
	for _, m := range []map[string]string{
		{"k": strings.Repeat("v", lease.MaxMetadata)},
		{strings.Repeat("k", lease.MaxMetadata+1): ""},
		{"k": "\xff"},
		{"\xff": "v"},
		{"k": "a\x00"},
		{"k": "a\rb"},
		{"a\x1b[31m": "v"},
		{"\x00": "v"},
	} {
		add("Metadata", func(r *lease.AcquireRequest) { r.Metadata = m })
	}
	return bad
}

// badClaims returns claims like c with one bad part, by its name.
func badClaims(c lease.Claim) map[string][]lease.Claim {
	bad := map[string][]lease.Claim{}
	add := func(field string, change func(*lease.Claim)) {
		b := c
		change(&b)
		bad[field] = append(bad[field], b)
	}
	for _, name := range badNames {
		add("Name", func(c *lease.Claim) { c.Name = name })
	}
	for _, text := range badTexts {
		add("Holder", func(c *lease.Claim) { c.Holder = text })
		add("ID", func(c *lease.Claim) { c.ID = text })
	}
	for _, token := range []uint64{0, lease.MaxToken + 1, math.MaxUint64} {
		add("Token", func(c *lease.Claim) { c.Token = token })
	}
	return bad
}

var invalidCases = []testCase{
	{"invalid: a bad acquisition is refused and stores nothing", func(s *suite) {
		for field, requests := range badAcquires() {
			for _, r := range requests {
				_, err := s.store.Acquire(s.Context(), r)
				requireInvalid(s, err, field)
			}
		}
		require.Empty(s, s.list(lease.ListRequest{}))
	}},
	{"invalid: a bad renewal or release is refused and changes nothing", func(s *suite) {
		l := s.acquire(request("job", "a"))
		s.unchanged(func() {
			for field, claims := range badClaims(l.Claim) {
				for _, c := range claims {
					requireInvalid(s, s.renewError(c), field)
					requireInvalid(s, s.store.Release(s.Context(), c), field)
				}
			}
			for _, ttl := range []time.Duration{0, -1, lease.MinTTL - 1, lease.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
				_, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: l.Claim, TTL: ttl})
				requireInvalid(s, err, "TTL")
			}
			for _, bad := range badAcquires()["Metadata"] {
				_, err := s.store.Renew(s.Context(), lease.RenewRequest{Claim: l.Claim, TTL: long, Metadata: bad.Metadata})
				requireInvalid(s, err, "Metadata")
			}
		})
	}},
	{"invalid: bad names, lists and sweeps are refused", func(s *suite) {
		for _, name := range badNames {
			_, err := s.store.Get(s.Context(), name)
			requireInvalid(s, err, "Name")
		}
		var err error
		for _, text := range badTexts[1:] { // none is valid
			for field, r := range map[string]lease.ListRequest{"After": {After: text}, "Prefix": {Prefix: text}} {
				for _, err = range s.store.List(s.Context(), r) {
				}
				requireInvalid(s, err, field)
			}
		}
		for _, err = range s.store.List(s.Context(), lease.ListRequest{Limit: -1}) {
		}
		requireInvalid(s, err, "Limit")
		_, err = s.store.Sweep(s.Context(), lease.SweepRequest{Retention: -1})
		requireInvalid(s, err, "Retention")
		_, err = s.store.Sweep(s.Context(), lease.SweepRequest{Limit: -1})
		requireInvalid(s, err, "Limit")
	}},
	{"invalid: what is just within the bounds is good", func(s *suite) {
		r := lease.AcquireRequest{
			Name:           strings.Repeat("n", lease.MaxName),
			Holder:         strings.Repeat("é", lease.MaxName/2),
			TTL:            lease.MaxTTL,
			IdempotencyKey: strings.Repeat("\U0001F600", lease.MaxName/4),
			Metadata:       map[string]string{"k": strings.Repeat("v", lease.MaxMetadata-1)},
			LockDelay:      lease.MaxTTL,
			MinHold:        lease.MaxTTL,
			MaxLifetime:    lease.LongestLifetime,
		}
		l := s.acquire(r)
		requireSameLease(s, l, s.acquire(r))
		require.Equal(s, r.Metadata, s.get(r.Name).Metadata)
		s.renew(l.Claim, lease.MaxTTL)
		s.release(l.Claim)
		shortest := request("short", "a")
		shortest.TTL, shortest.MaxLifetime = lease.MinTTL, lease.MinTTL
		s.acquire(shortest)
		s.expire("short")
		require.Zero(s, s.sweep(lease.SweepRequest{Retention: math.MaxInt64, Limit: math.MaxInt32}).Removed, "nothing ended centuries ago")
	}},
}
