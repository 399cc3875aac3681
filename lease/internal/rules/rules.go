package rules

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"maps"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// errTokens says that a name has used up all tokens. Only damaged data can cause that.
var errTokens = errors.New("lease: no token is left")

// NewID returns a new lease id.
func NewID() string { return rand.Text() }

// Acquire decides a valid request. It returns the new row. If an earlier sending of the
// request got the lease, the new row is row itself, with its Version. floor is not less than
// the version of any name that a sweep dropped; id is the ID for a new lease.
func Acquire(row Row, floor uint64, now time.Time, r lease.AcquireRequest, id string) (Row, lease.Lease, error) {
	held := row.State(now) == lease.Held
	if held && r.IdempotencyKey != "" && r.IdempotencyKey == row.IdempotencyKey && r.Holder == row.Holder {
		return row, row.Lease(now), nil
	}
	if remaining := row.AvailableAt().Sub(now); row.known() && remaining > 0 {
		e := &lease.HeldError{Name: r.Name, Remaining: remaining, Retry: Retry(remaining)}
		if held {
			e.Holder = row.Holder
		}
		return row, lease.Lease{}, e
	}
	version := max(row.Version, floor) + 1
	if version > lease.MaxToken {
		return row, lease.Lease{}, errTokens
	}
	next := Row{
		Claim:          lease.Claim{Name: r.Name, Holder: r.Holder, ID: id, Token: max(row.Token, floor) + 1},
		IdempotencyKey: r.IdempotencyKey,
		Metadata:       r.Metadata,
		AcquiredAt:     now,
		LockDelay:      r.LockDelay,
		MinHold:        r.MinHold,
		MaxLifetime:    r.MaxLifetime,
		Uncounted:      row.Uncounted,
		LastRelease:    row.LastRelease,
		Version:        version,
	}
	if row.expired(now) && !row.Cleared {
		next.Uncounted++
	}
	next.ExpiresAt = next.bound(now.Add(r.TTL))
	return next, next.Lease(now), nil
}

// bound returns t, or the end of the lifetime if that is earlier.
func (r Row) bound(t time.Time) time.Time {
	if end := r.AcquiredAt.Add(r.MaxLifetime); r.MaxLifetime > 0 && end.Before(t) {
		return end
	}
	return t
}

// Renew decides a valid request. It returns the new row, with metadata of its own.
func Renew(row Row, now time.Time, r lease.RenewRequest) (Row, lease.Lease, error) {
	if err := match(row, r.Claim); err != nil {
		return row, lease.Lease{}, err
	}
	if !row.ReleasedAt.IsZero() {
		return row, lease.Lease{}, &lease.StaleError{Name: r.Name, Released: true}
	}
	if row.expired(now) {
		return row, lease.Lease{}, &lease.ExpiredError{Name: r.Name, At: row.ExpiresAt}
	}
	next := row
	if until := row.bound(now.Add(r.TTL)); until.After(row.ExpiresAt) {
		next.ExpiresAt = until
	}
	if r.Metadata != nil {
		next.Metadata = maps.Clone(r.Metadata)
	}
	next.Version++
	return next, next.Lease(now), nil
}

// Release decides a valid request. It returns the new row, which is row itself if the lease was
// released before.
func Release(row Row, now time.Time, r lease.ReleaseRequest) (Row, error) {
	proof := ReleaseProof(r)
	if err := match(row, r.Claim); err != nil {
		if row.known() && proof != "" && proof == row.LastRelease {
			return row, nil
		}
		return row, err
	}
	if !row.ReleasedAt.IsZero() {
		return row, nil
	}
	if row.expired(now) {
		return row, &lease.ExpiredError{Name: r.Name, At: row.ExpiresAt}
	}
	next := row
	next.ReleasedAt = now
	next.LastRelease = cmp.Or(proof, row.LastRelease)
	next.Version++
	return next, nil
}

// ReleaseProof returns what a row stores to recognize a repeated release with a key: a digest of
// its holder, id, token and key. Its length does not depend on the key. A release without a key has
// the proof "".
func ReleaseProof(r lease.ReleaseRequest) string {
	if r.IdempotencyKey == "" {
		return ""
	}
	var text []byte
	for _, part := range [...]string{r.Holder, r.ID, r.IdempotencyKey} {
		text = binary.BigEndian.AppendUint64(text, uint64(len(part)))
		text = append(text, part...)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(text, r.Token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// match returns nil if c is the claim of the current or last lease.
func match(row Row, c lease.Claim) error {
	if !row.known() {
		return &lease.NotFoundError{Name: c.Name}
	}
	if row.Claim == c {
		return nil
	}
	return &lease.StaleError{Name: c.Name, Holder: row.Holder != c.Holder, ID: row.ID != c.ID, Token: row.Token != c.Token}
}
