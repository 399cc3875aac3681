package middleware

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
)

// BufferBody reads the body of a request, up to limit bytes, and puts it back, so that the handler
// can read it from the start. Use it in a KeyFunc whose entity is in the body. Its errors are
// *RequestError, for the KeyFunc to return: 413 if the body is longer than limit, 400 if it could
// not be read. In both cases the bytes that were read are put back too.
func BufferBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	limit = max(limit, 0)
	body := r.Body
	read, err := io.ReadAll(io.LimitReader(body, min(limit, math.MaxInt64-1)+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(read), body), body}

	_, tooLong := errors.AsType[*http.MaxBytesError](err)
	switch {
	case tooLong || int64(len(read)) > limit:
		return nil, &RequestError{
			Status: http.StatusRequestEntityTooLarge,
			Detail: fmt.Sprintf("The entity is looked for in a body of at most %d bytes.", limit),
		}
	case err != nil:
		return nil, &RequestError{Status: http.StatusBadRequest, Detail: "The body could not be read."}
	}
	return read, nil
}
