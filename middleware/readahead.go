package middleware

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// An aheadBody is a body of which a part was read already.
type aheadBody struct {
	read   bytes.Reader
	err    error // of the body, behind what was read; nil = ask the body
	body   io.ReadCloser
	closed bool
}

// readAhead reads a request's body before the request stands in line, and puts it
// back: an HTTP/1.1 server notices only after the end of the body that a client has
// gone, or when it reads a body that ends too early. It reads on the goroutine of the request, because a body must not be read beside
// the handler, and no body whose end can depend on what the handler answers.
func readAhead(r *http.Request, limit int) {
	if r.Body == nil || r.ProtoMajor != 1 || r.ContentLength <= 0 || r.ContentLength > int64(limit) ||
		strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		return
	}
	read := bytes.NewBuffer(make([]byte, 0, r.ContentLength+bytes.MinRead))
	_, err := read.ReadFrom(io.LimitReader(r.Body, int64(limit)+1)) // a wrapper can give more than what was sent
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

// Close closes the body: nothing can be read from it any more.
func (a *aheadBody) Close() error {
	a.closed = true
	return a.body.Close()
}
