package leasehttp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// ErrDenied means that the server does not accept the client's token, or that the token does not
// allow the request. Nothing was done. It matches lease.ErrNotReady, because somebody has to
// grant the right.
var ErrDenied = wire.ErrDenied

// A Client requests leases from a lock server, or from several servers on one store. It is safe for
// concurrent use.
//
// Its methods Acquire, Renew, Release, Get and List do the same as those of a lease.Store, with the
// same errors. Its RenewAll does the same as that of a lease.BatchRenewer. If an error is neither
// ErrDenied nor one of package lease, the outcome is unknown. The clocks of client and server need
// not agree.
type Client struct {
	config  ClientConfig
	servers servers

	together  together
	contended contended

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	mu     sync.Mutex // guards closed and, against Close's wait, the start of goroutines
	closed bool
	wg     sync.WaitGroup
}

// NewClient returns a client. If the config is not valid, the error names the field. NewClient
// starts nothing; the client connects when it is used.
func NewClient(c ClientConfig) (*Client, error) {
	bases, err := c.parse()
	if err != nil {
		return nil, err
	}
	c.setDefaults()
	client := &Client{config: c}
	for _, base := range bases {
		server := newTransport(&c, base)
		for kind := noLine + 1; kind < lineKinds; kind++ {
			server.lines[kind] = newLine(server, client.goIfOpen)
		}
		client.servers.all = append(client.servers.all, server)
	}
	client.ctx, client.cancel = context.WithCancel(context.Background())
	return client, nil
}

// Close ends all heartbeats, blocks until they have ended, and closes idle connections. It also
// waits for batches that are under way. Leases continue until they are released or expire.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
	for _, server := range c.servers.all {
		server.CloseIdleConnections()
	}
}

// goIfOpen runs f in a goroutine that Close waits for; false after Close.
func (c *Client) goIfOpen(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.wg.Go(f)
	}
	return !c.closed
}

// Acquire requests a lease once. It returns *lease.HeldError if somebody has one.
func (c *Client) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, _, err := c.acquire(ctx, r, 0)
	return l, err
}

// AcquireWait requests a lease. The request waits at the server, first come, first served, for at
// most wait. It returns *lease.HeldError if it did not get the lease in that time.
func (c *Client) AcquireWait(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, error) {
	l, _, err := c.acquire(ctx, r, wait)
	return l, err
}

// acquire also returns the Moment from which the lease counts; see lease.Trust.
func (c *Client) acquire(ctx context.Context, r lease.AcquireRequest, wait time.Duration) (lease.Lease, lease.Moment, error) {
	if r.IdempotencyKey == "" {
		r.IdempotencyKey = rand.Text()
	}
	if err := r.Validate(); err != nil {
		return lease.Lease{}, lease.Moment{}, err
	}
	answer, from, err := c.askAcquire(ctx, r.Name, wire.NewAcquireBody(r), wait)
	if err == nil {
		err = checkAnswer(r.Name, answer.Lock)
	}
	if err != nil {
		return lease.Lease{}, lease.Moment{}, err
	}
	return answer.Lease(), from, nil
}

// askAcquire also returns the Moment from which the answer's lease counts.
func (c *Client) askAcquire(ctx context.Context, name string, body wire.AcquireBody, wait time.Duration) (wire.LeaseBody, lease.Moment, error) {
	call := call{method: http.MethodPost, name: name, verb: verbAcquire, body: body}
	if wait > 0 {
		call.until = time.Now().Add(wait)
	}
	if !body.IsShare() && (wait <= 0 || !c.contended.has(name)) {
		call.line = lineOfAcquires
	}
	answer, sent, err := ask[wire.LeaseBody](ctx, c, &call)
	if held := errors.Is(err, lease.ErrHeld); held || err == nil {
		c.contended.note(name, held || answer.WaitedMS > 0)
	}
	if err == nil && answer.OwnerID != body.OwnerID {
		err = errMixedUp
	}
	from := sent.Add(wire.Milliseconds(max(answer.WaitedMS, 0)))
	if from.Remaining() > 0 { // whatever the server says, it did not wait into the future
		from = lease.Now()
	}
	return answer, from, err
}

// Renew prolongs a lease; see lease.Store.
func (c *Client) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	l, _, err := c.renew(ctx, r, lineOfClaims, nil)
	return l, err
}

// renew can share its request with others of the line, such as those of its gathering.
func (c *Client) renew(ctx context.Context, r lease.RenewRequest, line lineKind, together *gathering) (lease.Lease, lease.Moment, error) {
	if err := r.Validate(); err != nil {
		return lease.Lease{}, lease.Moment{}, err
	}
	answer, sent, err := ask[wire.LeaseBody](ctx, c, &call{method: http.MethodPost, name: r.Name, verb: verbRenew, body: wire.NewRenewBody(r), line: line, gathering: together})
	if err == nil {
		err = checkRenewal(r, &answer)
	}
	if err != nil {
		return lease.Lease{}, lease.Moment{}, err
	}
	return answer.Lease(), sent, nil
}

// checkRenewal detects an answer to a request other than the renewal r.
func checkRenewal(r lease.RenewRequest, answer *wire.LeaseBody) error {
	if err := checkAnswer(r.Name, answer.Lock); err != nil {
		return err
	}
	if answer.Lease().Claim != r.Claim {
		return errMixedUp
	}
	return nil
}

// Release ends a lease; see lease.Store.
func (c *Client) Release(ctx context.Context, claim lease.Claim) error {
	if err := claim.Validate(); err != nil {
		return err
	}
	body := wire.ReleaseBody{ClaimBody: wire.NewClaimBody(claim), IdempotencyKey: rand.Text()}
	answer, _, err := ask[wire.ReleasedBody](ctx, c, &call{method: http.MethodPost, name: claim.Name, verb: verbRelease, body: body, line: lineOfClaims})
	if err == nil {
		err = checkAnswer(claim.Name, answer.Lock)
	}
	if err == nil && answer.Claim(answer.Lock) != claim {
		err = errMixedUp
	}
	return err
}

// Get returns the record of one lock; see lease.Store. The lease's ID is empty unless the client's
// Token has the Admin right, because anyone who knows the ID can release the lease.
func (c *Client) Get(ctx context.Context, name string) (lease.Record, error) {
	return c.record(ctx, name, "", 0)
}

// GetAfter returns the record of one lock, like Get, as soon as the record's Version differs
// from version, and after wait at the latest. The server can end the wait early: check the
// Version, and pass it to the next call. version 0 = the lock is unknown. If Version is lower
// than the version passed, the store was started afresh. An expiry counts as a change once a
// sweep of the server has found it. GetAfter returns *lease.NotFoundError if the lock is
// unknown at the end.
func (c *Client) GetAfter(ctx context.Context, name string, version uint64, wait time.Duration) (lease.Record, error) {
	return c.record(ctx, name, "index="+strconv.FormatUint(version, 10), wait)
}

func (c *Client) record(ctx context.Context, name, query string, wait time.Duration) (lease.Record, error) {
	if err := lease.ValidateName(name); err != nil {
		return lease.Record{}, err
	}
	k := call{method: http.MethodGet, name: name, query: query}
	if wait > 0 {
		k.until = time.Now().Add(wait)
	}
	answer, _, err := ask[wire.RecordBody](ctx, c, &k)
	if err != nil {
		return lease.Record{}, err
	}
	return answer.Record(), nil
}

// List yields the records of locks, page by page; see lease.Store. As with Get, the IDs can be
// empty.
func (c *Client) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if err := r.Validate(); err != nil {
			yield(lease.Record{}, err)
			return
		}
		for seen := 0; ; {
			page, err := c.page(ctx, r)
			if err != nil {
				yield(lease.Record{}, err)
				return
			}
			for i := range page.Locks {
				if !yield(page.Locks[i].Record(), nil) {
					return
				}
				if seen++; seen == r.Limit {
					return
				}
			}
			if r.After = page.Next; r.After == "" {
				return
			}
		}
	}
}

func (c *Client) page(ctx context.Context, r lease.ListRequest) (wire.PageBody, error) {
	query := url.Values{"limit": {strconv.Itoa(wire.MaxPage)}}
	if r.Limit > 0 && r.Limit < wire.MaxPage {
		query.Set("limit", strconv.Itoa(r.Limit))
	}
	if r.After != "" {
		query.Set("after", r.After)
	}
	if r.Prefix != "" {
		query.Set("prefix", r.Prefix)
	}
	page, _, err := ask[wire.PageBody](ctx, c, &call{method: http.MethodGet, query: query.Encode()})
	return page, err
}

// checkAnswer detects a proxy between client and server that changes paths.
func checkAnswer(asked, answered string) error {
	if asked != answered {
		return fmt.Errorf("leasehttp: asked for lock %q, answered for %q: something on the way changes paths", asked, answered)
	}
	return nil
}
