package leasehttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

const (
	// maxRenewals bounds the size in bytes of a body of renewals, below a server's default limit.
	maxRenewals = 48 << 10

	// sendingsAtOnce is how many requests one RenewAll has in flight.
	sendingsAtOnce = 8

	// singlyFor is how long renewals are sent one by one after a server did not support them
	// together, such as one of an earlier version.
	singlyFor = time.Minute
)

var _ lease.BatchRenewer = (*Client)(nil)

// RenewAll implements lease.BatchRenewer. It sends as few requests as can hold the renewals, and
// each renewal has its own result. If a renewal's outcome is unknown, its error says so. The second
// result is always nil.
func (c *Client) RenewAll(ctx context.Context, all []lease.RenewRequest) ([]lease.RenewResult, error) {
	results := make([]lease.RenewResult, len(all))
	c.renewAll(ctx, all, func(i int, r renewal) { results[i] = lease.RenewResult{Lease: r.lease, Err: r.err} })
	return results, nil
}

// A renewal is the result of a RenewRequest. A renewed lease counts from the Moment.
type renewal struct {
	lease lease.Lease
	from  lease.Moment
	err   error
}

// renewAll calls done with the result of each request when its answer arrives, from several
// goroutines.
func (c *Client) renewAll(ctx context.Context, all []lease.RenewRequest, done func(i int, r renewal)) {
	each(pack(all, done), func(p parcel) {
		if len(p.index) == 1 || c.sendsSingly() {
			c.renewSingly(ctx, all, p, done)
			return
		}
		answer, sent, err := ask[wire.RenewedBody](ctx, c, &call{method: http.MethodPost, path: "/v1/renewals", body: p, line: lineOfClaims})
		switch {
		case err == nil && len(answer.Results) != len(p.index):
			err = errMixedUp
		case isNoBatch(err):
			until := lease.Now().Add(singlyFor)
			c.singly.Store(&until)
			c.renewSingly(ctx, all, p, done)
			return
		}
		for at, i := range p.index {
			r := renewal{from: sent, err: err}
			if err == nil {
				r.lease, r.err = readRenewal(all[i], answer.Results[at])
			}
			done(i, r)
		}
	})
}

func (c *Client) sendsSingly() bool {
	until := c.singly.Load()
	return until != nil && !until.Passed()
}

func (c *Client) renewSingly(ctx context.Context, all []lease.RenewRequest, p parcel, done func(i int, r renewal)) {
	each(p.index, func(i int) {
		var r renewal
		r.lease, r.from, r.err = c.renew(ctx, all[i], lineOfClaims)
		done(i, r)
	})
}

// each calls f for every element, some at a time, and returns when all calls are done. The client links
// no errgroup.
func each[T any](all []T, f func(T)) {
	places := make(chan struct{}, sendingsAtOnce)
	var calls sync.WaitGroup
	for _, one := range all {
		places <- struct{}{}
		calls.Go(func() {
			defer func() { <-places }()
			f(one)
		})
	}
	calls.Wait()
}

// A parcel is a group of renewals that go out together.
type parcel struct {
	Renewals []json.RawMessage `json:"renewals"` // as in a wire.RenewalsBody

	index []int // of each renewal among all
	size  int
}

// pack makes parcels that fit a server's limit. It calls done at once for invalid requests.
func pack(all []lease.RenewRequest, done func(i int, r renewal)) []parcel {
	var parcels []parcel
	for i, r := range all {
		err := r.Validate()
		var data []byte
		if err == nil {
			data, err = json.Marshal(wire.RenewalBody{Lock: r.Name, RenewBody: wire.NewRenewBody(r)})
		}
		if err != nil {
			done(i, renewal{err: err})
			continue
		}
		last := len(parcels) - 1
		if last < 0 || len(parcels[last].index) == wire.MaxRenewals || parcels[last].size+len(data) > maxRenewals {
			parcels, last = append(parcels, parcel{}), last+1
		}
		p := &parcels[last]
		p.Renewals, p.index, p.size = append(p.Renewals, data), append(p.index, i), p.size+len(data)
	}
	return parcels
}

// readRenewal returns the result that a single renewal would have returned.
func readRenewal(r lease.RenewRequest, result wire.RenewalResult) (lease.Lease, error) {
	switch {
	case result.Lease != nil:
		if err := checkRenewal(r, result.Lease); err != nil {
			return lease.Lease{}, err
		}
		return result.Lease.Lease(), nil
	case result.Problem == nil:
		return lease.Lease{}, errMixedUp
	}
	if read := readOf(result.Problem); read != nil {
		return lease.Lease{}, read(result.Problem, r.Name)
	}
	return lease.Lease{}, &unknownError{result.Problem}
}

// isNoBatch reports whether err says nothing about a lease, but that many renewals in one request
// do not work. Such errors come from a server that does not know them, from a proxy that lets only
// other paths through, or from a server that fails on one of the renewals.
func isNoBatch(err error) bool {
	if errors.Is(err, lease.ErrInvalid) || errors.Is(err, ErrDenied) {
		return true
	}
	unknown, ok := errors.AsType[*unknownError](err)
	return ok && (unknown.problem.Type == wire.TypeInternal || unknown.problem.Status < http.StatusInternalServerError)
}
