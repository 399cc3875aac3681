package leaseserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

func (s *Server) acquire(w http.ResponseWriter, r *http.Request) error {
	name, body, err := readLock[wire.AcquireBody](s, r)
	if err != nil {
		return err
	}
	wait, err := s.wait(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if body.IsShare() {
		return s.acquireShare(w, r, name, body, wait)
	}
	if wait > 0 { // or the timeout of reading the request would end it
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	answer, err := s.acquireLease(r.Context(), name, body, wait, callerOf(r).waitedBefore())
	return reply(w, answer, err)
}

// acquireLease carries out an acquire of an ordinary lease. before is for how long its request has
// been under way.
func (s *Server) acquireLease(ctx context.Context, name string, body *wire.AcquireBody, wait, before time.Duration) (wire.LeaseBody, error) {
	r := body.Request(name)
	var err error
	if r.TTL, err = s.ttl(name, r.TTL); err != nil {
		return wire.LeaseBody{}, err
	}
	if err := cmp.Or(r.Validate(), checkPlain(name)); err != nil {
		return wire.LeaseBody{}, err
	}
	l, waited, err := s.queue.acquire(ctx, r, wait)
	s.metrics.request(opAcquire, err)
	if err != nil {
		return wire.LeaseBody{}, err
	}
	answer := wire.NewLeaseBody(l)
	answer.WaitedMS = (before + waited).Milliseconds()
	return answer, nil
}

func (s *Server) renew(w http.ResponseWriter, r *http.Request) error {
	name, body, err := readLock[wire.RenewBody](s, r)
	if err != nil {
		return err
	}
	renewal, err := s.renewal(name, body)
	if err != nil {
		return err
	}
	answer, err := s.renewLease(r.Context(), renewal)
	return reply(w, answer, err)
}

// renewal returns the request of a renewal, with the TTL that the policies give it.
func (s *Server) renewal(name string, body *wire.RenewBody) (r lease.RenewRequest, err error) {
	r = body.Request(name)
	if r.TTL, err = s.ttl(name, r.TTL); err != nil {
		return r, err
	}
	return r, r.Validate()
}

// renewLease carries out a renewal.
func (s *Server) renewLease(ctx context.Context, r lease.RenewRequest) (wire.LeaseBody, error) {
	l, err := s.meter.renew(ctx, r)
	s.metrics.request(opRenew, err)
	if err != nil {
		return wire.LeaseBody{}, err
	}
	s.queue.renewed(l)
	return wire.NewLeaseBody(l), nil
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) error {
	name, body, err := readLock[wire.ReleaseBody](s, r)
	if err != nil {
		return err
	}
	answer, err := s.releaseLease(r.Context(), name, body)
	return reply(w, answer, err)
}

// releaseLease carries out a release.
func (s *Server) releaseLease(ctx context.Context, name string, body *wire.ReleaseBody) (wire.ReleasedBody, error) {
	r := lease.ReleaseRequest{Claim: body.Claim(name), IdempotencyKey: body.IdempotencyKey}
	if err := r.Validate(); err != nil {
		return wire.ReleasedBody{}, err
	}
	err := s.queue.releaseKeyed(ctx, r)
	switch {
	case err == nil:
		s.memo.add(r)
	case s.memo.has(r) && (errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrNotFound)):
		err = nil
	}
	s.metrics.request(opRelease, err)
	return wire.ReleasedBody{Lock: name, ClaimBody: body.ClaimBody}, err
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) error {
	name, err := lockName(r)
	if err != nil {
		return err
	}
	index, wait, err := s.watchOf(r.URL.RawQuery)
	if err != nil {
		return err
	}
	var record lease.Record
	if wait > 0 {
		if r.ContentLength == 0 { // an unread body must have a deadline; without a body it would end the wait
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
		record, err = s.meter.watches.after(r.Context(), name, index, wait)
	} else {
		record, err = s.meter.get(r.Context(), name)
	}
	return reply(w, s.recordBody(callerOf(r), record), err)
}

// recordBody returns the body for a record. Anyone who knows the id of a lease can end it. So only
// requests with an admin token see it; otherwise only the holder should know it.
func (s *Server) recordBody(c caller, r lease.Record) wire.RecordBody {
	r.Waiters = new(s.queue.waiters(r.Name))
	if c.token == nil || c.token.right != Admin {
		r.ID = ""
	}
	return wire.NewRecordBody(r)
}

// defaultPage is how many locks a page of a list has by default.
const defaultPage = 100

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	query, err := parseQuery(r.URL.RawQuery, "after", "prefix", "limit")
	if err != nil {
		return err
	}
	limit := defaultPage
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil && !errors.Is(err, strconv.ErrRange) {
			return wire.Refuse(wire.TypeInvalid, "limit is not an integer")
		} else if err != nil || limit < 1 || limit > wire.MaxPage {
			return &lease.InvalidError{Field: "Limit", Value: strconv.Quote(text), Remedy: fmt.Sprintf("use 1 to %d", wire.MaxPage)}
		}
	}
	request := lease.ListRequest{After: query.Get("after"), Prefix: query.Get("prefix"), Limit: limit + 1}
	if err := request.Validate(); err != nil {
		return err
	}
	c := callerOf(r)
	if err := c.token.checkName(request.Prefix); err != nil {
		return err
	}
	records, err := s.meter.list(r.Context(), request)
	if err != nil {
		return err
	}
	page := wire.PageBody{Locks: make([]wire.RecordBody, 0, min(len(records), limit))}
	for _, record := range records[:min(len(records), limit)] {
		page.Locks = append(page.Locks, s.recordBody(c, record))
	}
	if len(records) > limit {
		page.Next = records[limit-1].Name
	}
	return respond(w, &page)
}
