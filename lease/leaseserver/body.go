package leaseserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/pglatch/pglatch/internal/strictjson"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readLock reads the name of a lock and the body of a request.
func readLock[T any](s *Server, r *http.Request) (name string, body *T, err error) {
	if name, err = lockName(r); err != nil {
		return "", nil, err
	}
	body = new(T)
	return name, body, s.readBody(r, body)
}

// readBody reads a JSON object into body. It also refuses unknown fields: a server that ignored a
// misspelt idempotency key would grant two leases.
func (s *Server) readBody(r *http.Request, body any) error {
	if err := checkMediaType(r.Header.Get("Content-Type")); err != nil {
		return err
	}
	buffer := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buffer)
	buffer.Reset()
	if err := s.fill(buffer, r); err != nil {
		return err
	}
	if !utf8.Valid(buffer.Bytes()) {
		return wire.Refuse(wire.TypeInvalid, "the body is not UTF-8")
	}
	return decode(buffer.Bytes(), body)
}

// fill reads the body of a request, up to MaxBody.
func (s *Server) fill(buffer *bytes.Buffer, r *http.Request) error {
	err := error(nil)
	if r.ContentLength <= s.MaxBody {
		_, err = buffer.ReadFrom(io.LimitReader(r.Body, s.MaxBody+1))
	}
	switch {
	case err != nil:
		return wire.Refuse(wire.TypeInvalid, "the body ended early")
	case max(r.ContentLength, int64(buffer.Len())) > s.MaxBody:
		return wire.Refuse(wire.TypeTooLarge, fmt.Sprintf("the body is larger than %d bytes", s.MaxBody))
	}
	return nil
}

func checkMediaType(value string) error {
	if value == wire.JSONType {
		return nil
	}
	if media, _, err := mime.ParseMediaType(value); err != nil || media != wire.JSONType {
		return wire.Refuse(wire.TypeMediaType, "send the body as "+wire.JSONType)
	}
	return nil
}

// decode refuses names and texts that another JSON reader could interpret differently.
func decode(data []byte, body any) error {
	err := strictjson.Decode(data, body)
	if odd, ok := errors.AsType[*strictjson.Error](err); ok {
		return wire.Refuse(wire.TypeInvalid, odd.Error())
	}
	if err != nil {
		return jsonRefusal(err)
	}
	return nil
}

// jsonRefusal converts an integer that does not fit to an out-of-range error, and all else to an
// invalid request.
func jsonRefusal(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return wire.Refuse(wire.TypeInvalid, "the body is not the JSON object that is wanted: "+strings.TrimPrefix(err.Error(), "json: "))
	}
	digits, isNumber := strings.CutPrefix(e.Value, "number ")
	if _, parseErr := strconv.ParseInt(digits, 10, 64); isNumber && (parseErr == nil || errors.Is(parseErr, strconv.ErrRange)) && e.Type.Kind().String() != "string" {
		return wire.Refuse(wire.TypeOutOfRange, fmt.Sprintf("%s is out of range", e.Field))
	}
	return wire.Refuse(wire.TypeInvalid, fmt.Sprintf("%s cannot be a JSON %s", cmp.Or(e.Field, "the body"), e.Value))
}
