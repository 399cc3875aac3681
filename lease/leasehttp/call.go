package leasehttp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// A call is one request to the servers, however often it is sent.
type call struct {
	method string
	name   string // of the lock; "" = of all locks
	verb   string // "" = none
	path   string // "" = the path of the lock, or of all locks
	query  string
	body   any
	until  time.Time // the server may wait for the lock until then; zero = it does not wait
	line   lineKind  // with which calls it can share requests

	gathering *gathering // nil = none
}

// sharedSendings is how often a call can share a request with others. If no answer comes, one of
// the calls may be the reason why all of them get none, so the next sending is alone.
const sharedSendings = 2

// wait returns the rest of the time to wait.
func (k *call) wait() time.Duration {
	if k.until.IsZero() {
		return 0
	}
	return max(time.Until(k.until), 0)
}

// ask sends a call, and resends it if its answer was lost, until ctx ends. It decodes each answer
// into a new body, so that nothing remains of a truncated answer. The Moment is from before the
// sending that was answered.
func ask[B any](ctx context.Context, c *Client, k *call) (B, lease.Moment, error) {
	var body B
	sent, err := c.do(ctx, k, func(data []byte) error {
		body = *new(B)
		return json.Unmarshal(data, &body) // the server may know more fields
	})
	return body, sent, err
}

func (c *Client) do(ctx context.Context, k *call, decode func([]byte) error) (lease.Moment, error) {
	var data []byte
	if k.body != nil {
		var err error
		if data, err = json.Marshal(k.body); err != nil {
			return lease.Moment{}, err
		}
	}
	first, limit := c.servers.current.Load(), c.config.Resends
	if limit > 0 {
		limit = max(limit, len(c.servers.all)-1)
	}
	lost := false // a sending may have been carried out
	for sending := 0; ; sending++ {
		server, left := c.servers.turn(first, sending)
		problem, sent, err := c.send(ctx, c.servers.all[server], k, data, decode, left, sending < sharedSendings)
		if err == nil && problem == nil {
			return sent, nil
		}
		elsewhere := isElsewhere(problem)
		if elsewhere && ctx.Err() == nil {
			c.servers.leave(server)
		}
		// This sending did nothing, but an earlier one may have been carried out.
		if read := readOf(problem); read != nil && (!lost || isOfLease(problem)) {
			if elsewhere && left > 0 && sending < limit {
				continue
			}
			return sent, read(problem, k.name)
		}
		lost = lost || !k.reads() && !wasNotSent(err)
		err = cmp.Or(err, error(&unknownError{problem}))
		if sending == limit || ctx.Err() != nil || left == 0 && !k.pause(ctx, problem, pause.Backoff(sending/len(c.servers.all), firstPause, longestPause)) {
			return sent, c.unanswered(k, lost, err)
		}
	}
}

// reads reports whether a call changes nothing.
func (k *call) reads() bool { return k.method == http.MethodGet }

// unanswered returns the error of a call that got no answer. If lost, one of its sendings may have
// been carried out.
func (c *Client) unanswered(k *call, lost bool, err error) error {
	request := cmp.Or(k.verb, strings.ToLower(k.method)) + " " + cmp.Or(k.name, k.path, "/v1/locks")
	if lost {
		return fmt.Errorf("leasehttp: %s: outcome unknown: %w", request, err)
	}
	return &UnavailableError{Request: request, Servers: c.config.BaseURLs, Cause: err}
}

// pause waits before the next round of servers; false if there is to be none.
func (k *call) pause(ctx context.Context, problem *wire.Problem, d time.Duration) bool {
	if problem != nil && !k.until.IsZero() && k.wait() == 0 {
		return false
	}
	return pause.For(ctx, d) == nil
}

// readOf returns the function that converts a problem to the caller's error; nil if the problem
// does not say what happened.
func readOf(p *wire.Problem) func(*wire.Problem, string) error {
	if p == nil {
		return nil
	}
	return wire.KindOfType(p.Type).Read
}

// isOfLease reports whether a problem is the store's answer about the lock. Any other problem comes
// from a server that did not look at the request. In that case an earlier sending may have been
// carried out, by another server, or by this one before its rights and policies changed.
func isOfLease(p *wire.Problem) bool {
	switch p.Type {
	case wire.TypeHeld, wire.TypeStale, wire.TypeExpired, wire.TypeNotFound:
		return true
	}
	return false
}

// The bounds of the pause after a round of servers.
const (
	firstPause   = 40 * time.Millisecond
	longestPause = 10 * time.Second
)

// An unknownError wraps a problem that does not say what happened.
type unknownError struct{ problem *wire.Problem }

func (e *unknownError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("lock server: %d %s: %s", e.problem.Status, e.problem.Title, e.problem.Detail), ": ")
}

// send sends a call to a server once, and decodes the answer or returns a problem. If the server is
// silent, send leaves time for the other servers of the round and for the pause after it. The
// Moment is from before the sending.
func (c *Client) send(ctx context.Context, server *transport, k *call, data []byte, decode func([]byte) error, left int, share bool) (*wire.Problem, lease.Moment, error) {
	wait := k.wait()
	timeout := c.config.Timeout + wait
	if deadline, ok := ctx.Deadline(); ok && wait == 0 && len(c.servers.all) > 1 {
		timeout = min(timeout, time.Until(deadline)/time.Duration(left+2))
	}
	var a answer
	var err error
	if line := k.line; line != noLine && share {
		a, err = server.lines[line].send(ctx, k, data, timeout-wait)
	} else {
		a, err = server.send(ctx, k.method, k.target(wait), data, timeout)
	}
	if err != nil {
		return nil, a.sent, err
	}
	switch media, _, _ := mime.ParseMediaType(a.contentType); {
	case a.status == http.StatusOK && media == wire.JSONType:
		return nil, a.sent, decode(a.body)
	case media == problem.MediaType:
		problem := new(wire.Problem)
		if err := json.Unmarshal(a.body, problem); err != nil {
			return nil, a.sent, err
		}
		problem.Status = a.status
		return problem, a.sent, nil
	}
	return &wire.Problem{Status: a.status, Title: http.StatusText(a.status)}, a.sent, nil // from a proxy or the like
}

// target returns the path and the query of a call.
func (k *call) target(wait time.Duration) string {
	t := cmp.Or(k.path, "/v1/locks")
	if k.name != "" {
		t += "/" + url.PathEscape(k.name)
	}
	if k.verb != "" {
		t += "/" + k.verb
	}
	switch {
	case k.query != "" && wait > 0:
		t += "?" + k.query + "&wait=" + wait.String()
	case k.query != "":
		t += "?" + k.query
	case wait > 0:
		t += "?wait=" + wait.String()
	}
	return t
}
