package leaseserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

func (s *Server) acquire(c echo.Context) error {
	name, err := lockName(c)
	if err != nil {
		return err
	}
	var body wire.AcquireBody
	if err := s.readBody(c.Request(), &body); err != nil {
		return err
	}
	wait, err := s.wait(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	r := body.Request(name)
	if r.TTL, err = s.ttl(name, r.TTL); err != nil {
		return err
	}
	if body.IsShare() {
		return s.acquireShare(c, &body, r, wait)
	}
	if err := cmp.Or(r.Validate(), checkPlain(name)); err != nil {
		return err
	}
	if wait > 0 { // or the timeout of reading the request would end it
		_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Time{})
	}
	l, waited, err := s.queue.acquire(c.Request().Context(), r, wait)
	s.metrics.request(opAcquire, err)
	if err != nil {
		return err
	}
	answer := wire.NewLeaseBody(l)
	answer.WaitedMS = (waitedBefore(c) + waited).Milliseconds()
	return respond(c, &answer)
}

func (s *Server) renew(c echo.Context) error {
	name, err := lockName(c)
	if err != nil {
		return err
	}
	var body wire.RenewBody
	if err := s.readBody(c.Request(), &body); err != nil {
		return err
	}
	r := body.Request(name)
	if r.TTL, err = s.ttl(name, r.TTL); err != nil {
		return err
	}
	if err := r.Validate(); err != nil {
		return err
	}
	l, err := s.meter.renew(c.Request().Context(), r)
	s.metrics.request(opRenew, err)
	if err != nil {
		return err
	}
	s.queue.renewed(l)
	answer := wire.NewLeaseBody(l)
	return respond(c, &answer)
}

func (s *Server) release(c echo.Context) error {
	name, err := lockName(c)
	if err != nil {
		return err
	}
	var body wire.ReleaseBody
	if err := s.readBody(c.Request(), &body); err != nil {
		return err
	}
	r := lease.ReleaseRequest{Claim: body.Claim(name), IdempotencyKey: body.IdempotencyKey}
	if err := r.Validate(); err != nil {
		return err
	}
	err = s.queue.releaseKeyed(c.Request().Context(), r)
	switch {
	case err == nil:
		s.memo.add(r)
	case s.memo.has(r) && (errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrNotFound)):
		err = nil
	}
	s.metrics.request(opRelease, err)
	if err != nil {
		return err
	}
	return respond(c, &wire.ReleasedBody{Lock: name, ClaimBody: body.ClaimBody})
}

func (s *Server) get(c echo.Context) error {
	name, err := lockName(c)
	if err != nil {
		return err
	}
	index, wait, err := s.watchOf(c.Request().URL.RawQuery)
	if err != nil {
		return err
	}
	var record lease.Record
	if wait > 0 {
		if c.Request().ContentLength == 0 { // an unread body must have a deadline; without a body it would end the wait
			_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Time{})
		}
		record, err = s.meter.watches.after(c.Request().Context(), name, index, wait)
	} else {
		record, err = s.meter.get(c.Request().Context(), name)
	}
	if err != nil {
		return err
	}
	answer := recordBody(c, record)
	return respond(c, &answer)
}

// recordBody returns the body for a record. Anyone who knows the id of a lease can end it. So only
// requests with an admin token see it; otherwise only the holder should know it.
func recordBody(c echo.Context, r lease.Record) wire.RecordBody {
	if t, ok := c.Get(bearerKey).(bearerToken); !ok || t.right != Admin {
		r.ID = ""
	}
	return wire.NewRecordBody(r)
}

// defaultPage is how many locks a page of a list has by default.
const defaultPage = 100

func (s *Server) list(c echo.Context) error {
	query, err := parseQuery(c.Request().URL.RawQuery, "after", "prefix", "limit")
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
	r := lease.ListRequest{After: query.Get("after"), Prefix: query.Get("prefix"), Limit: limit + 1}
	if err := r.Validate(); err != nil {
		return err
	}
	if t, ok := c.Get(bearerKey).(bearerToken); ok {
		if err := t.checkName(r.Prefix); err != nil {
			return err
		}
	}
	records, err := s.meter.list(c.Request().Context(), r)
	if err != nil {
		return err
	}
	page := wire.PageBody{Locks: make([]wire.RecordBody, 0, min(len(records), limit))}
	for _, record := range records[:min(len(records), limit)] {
		page.Locks = append(page.Locks, recordBody(c, record))
	}
	if len(records) > limit {
		page.Next = records[limit-1].Name
	}
	return respond(c, &page)
}
