package leasehttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"
)

// A transport brings a message to the server and the answer back, in the time of
// timeout or not at all.
type transport interface {
	send(ctx context.Context, m *message, timeout time.Duration) (answer, error)
	CloseIdleConnections()
}

// A message is a request as a transport needs it.
type message struct {
	method string
	target string // path and query
	body   []byte // nil = none
}

// An answer is what came back.
type answer struct {
	status      int
	contentType string
	body        []byte
}

var (
	errNoAnswer = errors.New("no answer in time")
	errTooLong  = errors.New("lock server: the answer is too long")
)

// maxAnswer bounds what the client reads: a page of 1,000 locks with all their
// metadata is smaller.
const maxAnswer = 32 << 20

// A httpTransport is an http.Client for a transport.
type httpTransport struct {
	*http.Client
	base   *url.URL
	header http.Header
}

func (c *httpTransport) send(ctx context.Context, m *message, timeout time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, m.method, c.base.Scheme+"://"+c.base.Host+m.target, bytes.NewReader(m.body))
	if err != nil {
		return answer{}, err
	}
	r.Header = c.header.Clone()
	response, err := c.Do(r)
	if err == nil {
		defer func() { _ = response.Body.Close() }()
		var a answer
		if a, err = readAnswer(response); err == nil {
			return a, nil
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = errors.Join(cause, err)
	}
	return answer{}, err
}

// readAnswer reads the body of a response.
func readAnswer(response *http.Response) (answer, error) {
	a := answer{status: response.StatusCode, contentType: response.Header.Get("Content-Type")}
	var err error
	switch n := response.ContentLength; {
	case n > maxAnswer:
		err = errTooLong
	case n >= 0 && n <= 64<<10:
		a.body = make([]byte, n)
		_, err = io.ReadFull(response.Body, a.body)
	default:
		if a.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err == nil && len(a.body) > maxAnswer {
			err = errTooLong
		}
	}
	return a, err
}
