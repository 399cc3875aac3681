package leaseserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/errgroup"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// renewAll renews many leases, each as if its renewal had come alone. One result does not affect
// the others.
func (s *Server) renewAll(c echo.Context) error {
	var body wire.RenewalsBody
	if err := s.readBody(c.Request(), &body); err != nil {
		return err
	}
	if n := len(body.Renewals); n > wire.MaxRenewals {
		return &lease.InvalidError{Field: "Renewals", Value: fmt.Sprintf("%d of them", n), Remedy: "send at most " + strconv.Itoa(wire.MaxRenewals)}
	}
	results := make([]lease.RenewResult, len(body.Renewals))
	var requests []lease.RenewRequest
	var index []int // of each request among the results
	for i := range body.Renewals {
		r, err := s.mayRenew(c, &body.Renewals[i])
		if results[i].Err = err; err == nil {
			requests, index = append(requests, r), append(index, i)
		}
	}
	renewed, err := s.renewMany(c.Request().Context(), requests)
	if err != nil {
		return err
	}
	for at, i := range index {
		results[i] = renewed[at]
	}
	return respond(c, s.renewedBody(c, results))
}

// renewMany carries out renewals that are allowed and valid. If it returns an error, there are no
// results.
func (s *Server) renewMany(ctx context.Context, requests []lease.RenewRequest) ([]lease.RenewResult, error) {
	results, err := s.meter.renewAll(ctx, requests, s.panicked)
	for i := range requests {
		if err != nil {
			s.metrics.request(opRenew, err)
			continue
		}
		s.metrics.request(opRenew, results[i].Err)
		if results[i].Err == nil {
			s.queue.renewed(results[i].Lease)
		}
	}
	return results, err
}

func (s *Server) renewedBody(c echo.Context, results []lease.RenewResult) *wire.RenewedBody {
	answer := &wire.RenewedBody{Results: make([]wire.RenewalResult, len(results))}
	for i, r := range results {
		if r.Err != nil {
			answer.Results[i].Problem = s.problemOf(c, r.Err)
			continue
		}
		answer.Results[i].Lease = new(wire.NewLeaseBody(r.Lease))
	}
	return answer
}

// problemOf returns the problem of one operation of many.
func (s *Server) problemOf(c echo.Context, err error) *wire.Problem {
	p := wire.ProblemOf(err)
	s.logFailure(c, p, err)
	return &p
}

// mayRenew returns the request for one renewal of many. It refuses a renewal that the caller has no
// right to, and one that is not valid.
func (s *Server) mayRenew(c echo.Context, body *wire.RenewalBody) (lease.RenewRequest, error) {
	if err := s.mayAsk(c, body.Lock, "renew"); err != nil {
		return lease.RenewRequest{}, err
	}
	return s.renewal(body.Lock, &body.RenewBody)
}

// mayAsk refuses one operation of many if the caller has no right to it. It calls Authorize as if
// the operation had come alone.
func (s *Server) mayAsk(c echo.Context, name, verb string) error {
	if err := lease.ValidateName(name); err != nil {
		return err
	}
	if t, ok := c.Get(bearerKey).(bearerToken); ok {
		if err := t.checkName(name); err != nil {
			return err
		}
	}
	if s.Authorize == nil {
		return nil
	}
	alone := c.Request().Clone(c.Request().Context())
	alone.URL.Path, alone.URL.RawPath = "/v1/locks/"+name+"/"+verb, "/v1/locks/"+url.PathEscape(name)+"/"+verb
	alone.RequestURI, alone.Body = alone.URL.RawPath, http.NoBody
	if h, ok := c.Get(hopKey).(*hop); ok { // address and certificate are those of the server that forwarded it
		alone.RemoteAddr, alone.TLS = h.from, nil
	}
	if err := s.Authorize(alone); err != nil {
		return wire.Refuse(wire.TypeForbidden, "this operation is not allowed")
	}
	return nil
}

// renewAtOnce is how many renewals run at a time on a store that takes them one by one.
const renewAtOnce = 16

// errNotReached is the error of the renewals that a slow batch did not reach.
var errNotReached = errors.New("the store took too long for those before")

// renewAll renews many leases in one operation, if the store can do that. Else it renews them one
// by one, within the time of one.
func (m *meter) renewAll(ctx context.Context, all []lease.RenewRequest, panicked func(context.Context, any) error) ([]lease.RenewResult, error) {
	if len(all) == 0 {
		return nil, nil
	}
	if m.batch != nil {
		results, err := measured(ctx, m, opRenewAll, func(ctx context.Context) ([]lease.RenewResult, error) { return m.batch.RenewAll(ctx, all) })
		for i, r := range all {
			if err == nil {
				m.tell(r.Name, results[i].Err)
			} else {
				m.tell(r.Name, err)
			}
		}
		return results, err
	}
	ctx, cancel := m.bound(ctx)
	defer cancel()
	results := make([]lease.RenewResult, len(all))
	var renewing errgroup.Group
	renewing.SetLimit(renewAtOnce)
	for i, r := range all {
		renewing.Go(func() error {
			results[i] = m.renewOne(ctx, r, panicked)
			return nil
		})
	}
	return results, renewing.Wait()
}

// renewOne does one of many renewals, within the time that is left for all.
func (m *meter) renewOne(ctx context.Context, r lease.RenewRequest, panicked func(context.Context, any) error) (result lease.RenewResult) {
	if ctx.Err() != nil {
		return lease.RenewResult{Err: &lease.BusyError{Retry: pause.AtMost(wire.DefaultRetry), Cause: errNotReached}}
	}
	defer func() {
		if v := recover(); v != nil {
			result = lease.RenewResult{Err: panicked(ctx, v)}
		}
	}()
	start := time.Now()
	result.Lease, result.Err = m.store.Renew(ctx, r)
	m.metrics.observe(opRenew, start, result.Err)
	m.tell(r.Name, result.Err)
	return result
}
