package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/namespace"
)

func TestTheTableOfLockErrors(t *testing.T) {
	t.Parallel()
	g := &gate{Config: Config{BusyStatus: 423}}
	key := namespace.Pair(1, 42)
	for _, row := range []struct {
		err    error
		status int
		kind   string
	}{
		{&advisory.HeldError{Key: key}, 423, TypeBusy},
		{&advisory.TimeoutError{Key: key}, 423, TypeBusy},
		{&advisory.TimeoutError{Key: key, Cause: context.DeadlineExceeded}, 423, TypeBusy},
		{&advisory.PoolExhaustedError{Key: key}, 503, TypePool}, // matches ErrTimeout too
		{&advisory.PoolExhaustedError{Key: key, Outer: []namespace.Key{key}}, 503, TypePool},
		{advisory.ErrUnavailable, 503, TypeUnavailable},
		{fmt.Errorf("%w: %w", advisory.ErrUnavailable, context.DeadlineExceeded), 503, TypeUnavailable},
		{advisory.ErrRefused, 500, TypeRefused},
		{advisory.ErrClosed, 503, TypeUnavailable},
		{advisory.ErrLockTableFull, 503, TypeUnavailable},
		{advisory.ErrStandby, 503, TypeUnavailable},
		{&pgconn.PgError{Code: "57P03"}, 503, TypeUnavailable},
		{errors.New("unheard of"), 503, TypeUnavailable},
		{&advisory.LostError{Key: key, Cause: advisory.ErrClosed}, 503, TypeLost},
		{&advisory.ReentrantError{Key: key}, 500, TypeMisuse},
		{&advisory.DeadlockError{}, 500, TypeMisuse},
		{&namespace.Error{Sentinel: namespace.ErrInvalidKey}, 400, TypeNoEntity},
	} {
		for _, err := range []error{row.err, fmt.Errorf("wrapped: %w", row.err)} {
			p := g.lockProblem(err)
			assert.Equal(t, row.status, p.Status, err)
			assert.Equal(t, row.kind, p.Type, err)
		}
	}
}

func TestAProblemReplacesTheHeadersOfTheHandler(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	for _, name := range []string{"Content-Length", "Content-Encoding", "ETag", "Last-Modified", "Cache-Control"} {
		rec.Header().Set(name, "of the handler")
	}
	rec.Header().Set("X-Request-Id", "7")
	(&Problem{Type: typeBlank, Title: "Bad Request", Status: http.StatusBadRequest}).Respond(rec)
	assert.Equal(t, http.Header{
		"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"},
		"X-Content-Type-Options": {"nosniff"}, "X-Request-Id": {"7"},
	}, rec.Header())
	assert.JSONEq(t, `{"type": "about:blank", "title": "Bad Request", "status": 400, "holder": null}`, rec.Body.String())
}

func TestARawKeyIsNamedByItsText(t *testing.T) {
	t.Parallel()
	var p Problem
	(&gate{}).complete(&p, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/a%2Fb?token=x", nil), namespace.Pair(1, 42), nil)
	assert.Empty(t, p.Namespace)
	assert.Equal(t, "1:42", p.Entity)
	assert.Equal(t, "/a%2Fb", p.Instance, "no query: it can hold secrets")
}
