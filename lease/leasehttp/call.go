package leasehttp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// maxAnswer bounds what the client reads: a page of 1,000 locks with all their
// metadata is smaller.
const maxAnswer = 32 << 20

// A call is one request to the server, however often it is sent.
type call struct {
	method string
	name   string // of the lock; "" = of all locks
	verb   string // "" = none
	query  string
	body   any
	wait   time.Duration // that the server may take beside Timeout
}

// do sends a call, again if its answer was lost, until ctx ends, and decodes the
// answer. The Moment is from before the sending that was answered.
func (c *Client) do(ctx context.Context, k *call, answer any) (lease.Moment, error) {
	var data []byte
	if k.body != nil {
		var err error
		if data, err = json.Marshal(k.body); err != nil {
			return lease.Moment{}, err
		}
	}
	for resend := 0; ; resend++ {
		sent := lease.Now()
		problem, err := c.send(ctx, k, data, answer)
		if problem != nil {
			if read := kindOfType(problem.Type).read; read != nil {
				return sent, read(problem, k.name)
			}
		}
		if err == nil && problem == nil {
			return sent, nil
		}
		err = cmp.Or(err, error(&unknownError{problem}))
		if resend == c.config.Resends || pause(ctx, jitter(firstPause<<resend)) != nil {
			return sent, fmt.Errorf("leasehttp: %s %s: outcome unknown: %w", cmp.Or(k.verb, k.method), k.name, err)
		}
	}
}

const firstPause = 25 * time.Millisecond

// An unknownError is a problem that does not say what happened.
type unknownError struct{ problem *Problem }

func (e *unknownError) Error() string {
	return fmt.Sprintf("lock server: %d %s", e.problem.Status, e.problem.Title)
}

// send sends a call once: the answer is decoded, or a problem returned.
func (c *Client) send(ctx context.Context, k *call, data []byte, answer any) (*Problem, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout+k.wait, errors.New("no answer in time"))
	defer cancel()
	response, err := c.carry(c.request(ctx, k, data))
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			return nil, errors.Join(cause, err)
		}
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := readAnswer(response)
	if err != nil {
		return nil, err
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode == http.StatusOK && media == jsonType:
		return nil, json.Unmarshal(body, answer)
	case media == problemType:
		problem := new(Problem)
		if err := json.Unmarshal(body, problem); err != nil {
			return nil, err
		}
		problem.Status = response.StatusCode
		return problem, nil
	}
	return &Problem{Status: response.StatusCode, Title: http.StatusText(response.StatusCode)}, nil // of something in between
}

// carry spares the client's own transport what http.Client does for redirects and
// cookies, and the copy of the headers.
func (c *Client) carry(r *http.Request) (*http.Response, error) {
	if d, ok := c.config.HTTPClient.Transport.(*direct); ok {
		return d.RoundTrip(r)
	}
	r.Header = r.Header.Clone()
	return c.config.HTTPClient.Do(r)
}

func readAnswer(response *http.Response) ([]byte, error) {
	if n := response.ContentLength; n >= 0 && n <= 64<<10 {
		body := make([]byte, n)
		_, err := io.ReadFull(response.Body, body)
		return body, err
	}
	return io.ReadAll(io.LimitReader(response.Body, maxAnswer))
}

func (c *Client) request(ctx context.Context, k *call, data []byte) *http.Request {
	u := *c.base
	u.Path += "/v1/locks"
	if k.name != "" {
		escaped := url.PathEscape(k.name)
		u.RawPath = u.EscapedPath() + "/" + escaped
		u.Path += "/" + k.name
		if k.verb != "" {
			u.RawPath += "/" + k.verb
			u.Path += "/" + k.verb
		}
	}
	u.RawQuery = k.query
	r := &http.Request{
		Method: k.method, URL: &u, Host: u.Host, Header: c.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if data != nil {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	return r.WithContext(ctx)
}

// pause sleeps, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
