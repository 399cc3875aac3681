package leaseserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// batchAtOnce is how many operations of one batch run at a time. The store groups those that arrive
// together into one commit.
const batchAtOnce = 256

// batch carries out many operations, each as if it had come alone. One result does not affect the
// others.
func (s *Server) batch(w http.ResponseWriter, r *http.Request) error {
	var body wire.BatchBody
	if err := s.readBody(r, &body); err != nil {
		return err
	}
	if r.URL.RawQuery != "" {
		return wire.Refuse(wire.TypeInvalid, "a batch has no query parameters")
	}
	if n := len(body.Operations); n > wire.MaxBatch {
		return &lease.InvalidError{Field: "Operations", Value: fmt.Sprintf("%d of them", n), Remedy: "send at most " + strconv.Itoa(wire.MaxBatch)}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it can take as long as two operations
	b := &batch{
		Server: s, request: r, ctx: r.Context(), caller: callerOf(r), start: time.Now(),
		operations: body.Operations, results: make([]wire.BatchResult, len(body.Operations)),
	}
	b.run(b.lines())
	return respond(w, &wire.BatchedBody{Results: b.results})
}

// A batch is the operations of one request.
type batch struct {
	*Server

	request    *http.Request
	ctx        context.Context
	caller     caller
	start      time.Time
	operations []wire.BatchOperation
	results    []wire.BatchResult
}

// lines checks all operations, and answers those that are refused. It returns the others by their
// locks. Operations on one lock run one after the other, in the order of the batch.
func (b *batch) lines() [][]int {
	var lines [][]int
	at := make(map[string]int) // the lock's index among the lines
	for i := range b.operations {
		name, err := b.check(i)
		if err != nil {
			b.refuse(i, err)
			continue
		}
		line, ok := at[name]
		if !ok {
			line = len(lines)
			at[name], lines = line, append(lines, nil)
		}
		lines[line] = append(lines[line], i)
	}
	return lines
}

// check refuses an operation that the caller has no right to, or that is not for a batch. It
// returns the name of the lock.
func (b *batch) check(i int) (name string, err error) {
	if !b.withinRate(i) {
		return "", wire.Refuse(wire.TypeRateLimited, "too many operations from this address")
	}
	name, verb, err := parts(&b.operations[i])
	if err != nil {
		return "", err
	}
	if err := b.mayAsk(name, verb); err != nil {
		return "", err
	}
	if a := b.operations[i].Acquire; a != nil {
		return name, b.checkAtOnce(a)
	}
	return name, nil
}

// parts returns the lock of an operation, and what to do with it.
func parts(o *wire.BatchOperation) (name, verb string, err error) {
	n := 0
	if o.Acquire != nil {
		name, verb, n = o.Acquire.Lock, "acquire", n+1
	}
	if o.Renew != nil {
		name, verb, n = o.Renew.Lock, "renew", n+1
	}
	if o.Release != nil {
		name, verb, n = o.Release.Lock, "release", n+1
	}
	if n != 1 {
		return "", "", wire.Refuse(wire.TypeInvalid, "an operation is exactly one of acquire, renew and release")
	}
	return name, verb, nil
}

// checkAtOnce refuses an acquire that can wait, because all other answers of the batch would wait
// with it.
func (b *batch) checkAtOnce(a *wire.BatchAcquireBody) error {
	wait, err := b.parseWait(a.Wait)
	switch {
	case err != nil:
		return err
	case wait > 0:
		return &lease.InvalidError{Field: "Wait", Value: a.Wait, Remedy: "use 0s or leave it out: a batch does not wait, so send this acquire alone"}
	case a.IsShare():
		return wire.Refuse(wire.TypeInvalid, "an acquire with slots or mode can wait behind others, and a batch does not wait: send it alone")
	}
	return nil
}

// mayAsk refuses an operation that the caller has no right to. It calls Authorize as if the operation
// had come alone.
func (b *batch) mayAsk(name, verb string) error {
	if err := lease.ValidateName(name); err != nil {
		return err
	}
	if err := b.caller.token.checkName(name); err != nil {
		return err
	}
	if b.Authorize == nil {
		return nil
	}
	alone := b.request.Clone(b.ctx)
	alone.URL.Path, alone.URL.RawPath = "/v1/locks/"+name+"/"+verb, "/v1/locks/"+url.PathEscape(name)+"/"+verb
	alone.RequestURI, alone.Body = alone.URL.RawPath, http.NoBody
	alone.Pattern = "POST " + lockRoute + "/" + verb
	alone.SetPathValue(paramLock, name)
	if h := b.caller.hop; h != nil { // address and certificate are those of the server that forwarded it
		alone.RemoteAddr, alone.TLS = h.from, nil
	}
	if err := b.Authorize(alone); err != nil {
		return wire.Refuse(wire.TypeForbidden, "this operation is not allowed")
	}
	return nil
}

// withinRate charges the rate of the client's address for operation i. The request itself was charged
// as one operation. If another server forwarded the request, that server has charged it.
func (b *batch) withinRate(i int) bool {
	address := b.request.RemoteAddr
	if h := b.caller.hop; h.isProven() {
		address = h.from
	} else if i == 0 {
		return true
	}
	return b.limiter.Allow(address)
}

// run carries out the operations of all lines. Renewals that are alone on their locks are one
// operation of the store, if it can do that.
func (b *batch) run(lines [][]int) {
	var running errgroup.Group
	running.SetLimit(batchAtOnce)
	var renewals []int
	var others [][]int
	for _, line := range lines {
		if len(line) == 1 && b.operations[line[0]].Renew != nil && b.meter.batch != nil {
			renewals = append(renewals, line[0])
		} else {
			others = append(others, line)
		}
	}
	if len(renewals) > 0 {
		running.Go(func() error {
			b.renewAll(renewals)
			return nil
		})
	}
	for _, line := range others {
		running.Go(func() error {
			for _, i := range line {
				b.one(i)
			}
			return nil
		})
	}
	_ = running.Wait()
}

// one carries out one operation. It refuses the operation if the batch has already taken as long
// as one operation may take, or if the client has left.
func (b *batch) one(i int) {
	if err := b.survive(b.ctx, func() error { return b.operate(i) }); err != nil {
		b.refuse(i, err)
	}
}

func (b *batch) operate(i int) error {
	if time.Since(b.start) > b.StoreTimeout || b.ctx.Err() != nil {
		return &lease.BusyError{Retry: pause.AtMost(wire.DefaultRetry), Cause: cmp.Or(context.Cause(b.ctx), errNotReached)}
	}
	var err error
	result := wire.BatchResult{Status: http.StatusOK}
	switch o := &b.operations[i]; {
	case o.Acquire != nil:
		if err = b.queue.giveWay(o.Acquire.Lock); err == nil {
			result.Lease, err = pointer(b.acquireLease(b.ctx, o.Acquire.Lock, &o.Acquire.AcquireBody, 0, b.caller.waitedBefore()))
		}
	case o.Renew != nil:
		var r lease.RenewRequest
		if r, err = b.renewal(o.Renew.Lock, &o.Renew.RenewBody); err == nil {
			result.Lease, err = pointer(b.renewLease(b.ctx, r))
		}
	default:
		result.Released, err = pointer(b.releaseLease(b.ctx, o.Release.Lock, &o.Release.ReleaseBody))
	}
	if err == nil {
		b.results[i] = result
	}
	return err
}

// renewAll carries out renewals of different locks in one operation of the store.
func (b *batch) renewAll(all []int) {
	err := b.survive(b.ctx, func() error {
		b.renewEach(all)
		return nil
	})
	if err != nil {
		for _, i := range all {
			b.refuse(i, err)
		}
	}
}

func (b *batch) renewEach(all []int) {
	var requests []lease.RenewRequest
	var index []int
	for _, i := range all {
		o := b.operations[i].Renew
		r, err := b.renewal(o.Lock, &o.RenewBody)
		if err != nil {
			b.refuse(i, err)
			continue
		}
		requests, index = append(requests, r), append(index, i)
	}
	if len(requests) == 0 {
		return
	}
	renewed, failed := measured(b.ctx, b.meter, opRenewAll, func(ctx context.Context) ([]lease.RenewResult, error) {
		return b.meter.batch.RenewAll(ctx, requests)
	})
	for at, i := range index {
		r := lease.RenewResult{Err: failed}
		if failed == nil {
			r = renewed[at]
		}
		b.meter.tell(requests[at].Name, r.Err)
		b.metrics.request(opRenew, r.Err)
		if r.Err != nil {
			b.refuse(i, r.Err)
			continue
		}
		b.queue.renewed(r.Lease)
		b.results[i] = wire.BatchResult{Status: http.StatusOK, Lease: new(wire.NewLeaseBody(r.Lease))}
	}
}

// errNotReached is the error of the operations that a slow batch did not reach.
var errNotReached = errors.New("the store took too long for those before")

// refuse answers an operation with a problem.
func (b *batch) refuse(i int, err error) {
	if errors.Is(err, errMoved) { // a lease without a key was given back
		err = &lease.BusyError{Retry: pause.AtMost(wire.DefaultRetry), Cause: err}
	}
	p := wire.ProblemOf(err)
	b.logFailure(b.request, p, err)
	b.results[i] = wire.BatchResult{Status: p.Status, Problem: &p}
}

// pointer returns a pointer to the result of a call, or nil with its error.
func pointer[T any](result T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return &result, nil
}
