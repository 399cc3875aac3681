package leaseserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// forceRelease ends the lease of another holder. Between the Get that finds it and its end, the
// lease can be renewed, which makes no difference, or have a successor, which the claim does not
// match.
func (s *Server) forceRelease(w http.ResponseWriter, r *http.Request) error {
	name, body, err := readLock[wire.ForceReleaseBody](s, r)
	if err != nil {
		return err
	}
	if err := checkReason(body.Reason); err != nil {
		return err
	}
	f := forced{Server: s, by: callerOf(r).token.who, body: *body}
	answer, err := f.release(r.Context(), name)
	s.metrics.forced.count(err)
	f.audit(r, answer, err)
	return reply(w, answer, err)
}

// A forced is one forced release.
type forced struct {
	*Server

	by   string
	body wire.ForceReleaseBody
}

// release ends the lease, and returns which one it was, even with an error.
func (f *forced) release(ctx context.Context, name string) (answer wire.ForceReleasedBody, err error) {
	record, err := f.meter.get(ctx, name)
	if err != nil {
		answer.Lock = name
		return answer, err
	}
	if f.isAgain(record) {
		return f.asBefore(record), nil
	}
	answer.LeaseBody = wire.NewLeaseBody(record.Lease)
	answer.LeaseID = ""
	if err := f.check(record); err != nil {
		return answer, err
	}
	var kept time.Duration
	switch {
	case record.State != lease.Held || record.LockDelay == 0 && record.MinHold == 0:
		return answer, f.queue.release(ctx, record.Claim) // as its holder would; a repeated release is no error
	case record.LockDelay == 0: // its MinHold keeps the lock
		kept, err = f.queue.releaseAndLook(ctx, record.Claim)
	default:
		kept, err = f.queue.releaseAndKeep(ctx, record.Claim, f.keeper(record))
	}
	answer.LockDelayMS = wire.CeilMS(kept)
	return answer, err
}

// isAgain reports whether an earlier sending of the request, whose answer can have been lost, ended
// the named lease. The current lease then keeps the lock for its LockDelay.
func (f *forced) isAgain(r lease.Record) bool {
	token := f.body.FencingToken
	return r.State == lease.Held && r.Holder == wire.DelayHolder && f.body.LeaseID == "" && token != 0 && token != r.Token &&
		r.Metadata[ownToken] == strconv.FormatUint(token, 10)
}

// asBefore returns the answer of the earlier sending, except for the times of the lease. These are
// no longer known: both are the time of its end.
func (f *forced) asBefore(r lease.Record) wire.ForceReleasedBody {
	ended := lease.Lease{
		Claim:      lease.Claim{Name: r.Name, Holder: r.Metadata[ownHolder], Token: f.body.FencingToken},
		AcquiredAt: r.AcquiredAt, ExpiresAt: r.AcquiredAt,
	}
	return wire.ForceReleasedBody{LeaseBody: wire.NewLeaseBody(ended), LockDelayMS: wire.CeilMS(r.Remaining)}
}

// check refuses a lease other than the one that the request names.
func (f *forced) check(r lease.Record) error {
	id, token := f.body.LeaseID, f.body.FencingToken
	stale := &lease.StaleError{Name: r.Name, ID: id != "" && id != r.ID, Token: token != 0 && token != r.Token}
	switch {
	case stale.ID || stale.Token:
		return stale
	case token == 0 && id == "":
		return wire.ForceReleasable(r)
	}
	return nil
}

// The metadata keys of a lease that keeps a lock for a LockDelay; they name the ended lease.
const (
	ownHolder = "owner_id"
	ownToken  = "fencing_token"
)

// keeper returns the request for the lease that keeps the lock for a LockDelay.
func (f *forced) keeper(r lease.Record) lease.AcquireRequest {
	return lease.AcquireRequest{
		Name: r.Name, Holder: wire.DelayHolder, TTL: max(r.LockDelay, lease.MinTTL),
		Metadata: map[string]string{"reason": f.body.Reason, "by": f.by, ownHolder: r.Holder, ownToken: strconv.FormatUint(r.Token, 10)},
	}
}

// audit writes the log line of a forced release. It contains no lease id, because anyone who knows
// one can end the lease.
func (f *forced) audit(r *http.Request, ended wire.ForceReleasedBody, err error) {
	outcome, from := "unknown", clientAddress(r)
	if h := callerOf(r).hop; h.isProven() {
		from = h.from
	}
	switch {
	case err == nil:
		outcome = "released"
	case wire.KindOf(err).Sentinel != nil: // nothing was done
		outcome = "refused"
	}
	attributes := []slog.Attr{
		slog.String("outcome", outcome), slog.String("by", f.by), slog.String("from", from),
		slog.String("lock", ended.Lock), slog.String("owner_id", ended.OwnerID), slog.Uint64("fencing_token", ended.FencingToken),
		slog.String("reason", f.body.Reason), slog.Int64("lock_delay_ms", ended.LockDelayMS),
	}
	if err != nil {
		attributes = append(attributes, slog.Any("error", err))
	}
	f.Logger.LogAttrs(r.Context(), slog.LevelWarn, "lease_force_released", attributes...)
}

const maxReason = 512 // bytes

func checkReason(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return &lease.InvalidError{Field: "Reason", Value: "empty", Remedy: "say why, for the log"}
	case len(reason) > maxReason:
		return &lease.InvalidError{Field: "Reason", Value: strconv.Itoa(len(reason)) + " bytes", Remedy: "use at most " + strconv.Itoa(maxReason)}
	case strings.ContainsFunc(reason, unicode.IsControl):
		return &lease.InvalidError{Field: "Reason", Value: strconv.Quote(reason), Remedy: "use no control characters"}
	}
	return nil
}

// releaseAndLook ends a lease, and returns for how long its MinHold keeps the lock.
func (q *queue) releaseAndLook(ctx context.Context, c lease.Claim) (time.Duration, error) {
	if err := q.release(ctx, c); err != nil {
		return 0, err
	}
	r, err := q.meter.get(ctx, c.Name)
	if err != nil || r.State == lease.Held { // it was released
		return 0, nil //nolint:nilerr // and that is what was asked for
	}
	return r.AvailableIn, nil
}

// releaseAndKeep ends a lease and keeps its lock from everybody by another lease, in one operation
// if the store can do that. Else a request that comes between the two gets the lock. It returns for
// how long the lock is kept: only for the rest of a MinHold, if that is not over.
func (q *queue) releaseAndKeep(ctx context.Context, c lease.Claim, keeper lease.AcquireRequest) (time.Duration, error) {
	q.unconfirm(c.Name)
	var l lease.Lease
	var released, acquired error
	if q.meter.canHandOver() {
		l, released, acquired = q.meter.handOver(ctx, lease.ReleaseRequest{Claim: c}, keeper, nil)
	} else if released = q.meter.release(ctx, lease.ReleaseRequest{Claim: c}); released == nil {
		l, acquired = q.meter.acquire(ctx, keeper)
	}
	if released != nil {
		if l.Token != 0 { // its holder was faster, and the lock was free
			_ = q.release(ctx, l.Claim) // else it expires
		}
		if wire.KindOf(released).Sentinel == nil { // it may have been done
			q.wake(c.Name)
		}
		return 0, released
	}
	q.wake(c.Name) // waiters learn for how long
	if held, ok := errors.AsType[*lease.HeldError](acquired); ok {
		return held.Remaining, nil
	}
	return l.Remaining, nil
}
