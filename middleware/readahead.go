package middleware

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// An aheadBody is a request body that was partly read in advance.
type aheadBody struct {
	read   bytes.Reader
	err    error // returned after the bytes that were read ahead; nil = read on from the body
	body   io.ReadCloser
	closed bool
}

// readAhead reads a request's body before the request waits for the lock, and puts it back. An HTTP/1.1 server detects
// that a client has left only after the end of the body, or when it reads a body that ends too early. readAhead runs on
// the request's goroutine, because nothing may read a body concurrently with the handler. It skips every body whose end
// can depend on the handler's answer.
func readAhead(r *http.Request, limit int) {
	if r.Body == nil || r.ProtoMajor != 1 || r.ContentLength <= 0 || r.ContentLength > int64(limit) ||
		strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		return
	}
	read := bytes.NewBuffer(make([]byte, 0, r.ContentLength+bytes.MinRead))
	_, err := read.ReadFrom(io.LimitReader(r.Body, int64(limit)+1)) // a wrapper can return more than the client sent
	a := &aheadBody{err: err, body: r.Body}
	a.read.Reset(read.Bytes())
	r.Body = a
}

func (a *aheadBody) Read(p []byte) (int, error) {
	switch {
	case a.closed:
	case a.read.Len() > 0:
		return a.read.Read(p)
	case a.err != nil:
		return 0, a.err
	}
	return a.body.Read(p)
}

// Close closes the body: later reads return nothing.
func (a *aheadBody) Close() error {
	a.closed = true
	return a.body.Close()
}
