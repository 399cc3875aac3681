package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/namespace"
)

func TestEveryErrorOfTheLibraryHasAnAnswerOfItsOwn(t *testing.T) {
	t.Parallel()
	key := namespace.Pair(1, 42)
	held := &advisory.HeldError{Key: key, Holder: &advisory.Holder{PID: 7}}
	g := &Gate{config: Config{BusyStatus: 423}}
	for _, row := range []struct {
		err    error
		status int
		kind   string
		retry  string
	}{
		{held, 423, TypeBusy, "1"},
		{&advisory.TimeoutError{Key: key}, 423, TypeBusy, "1"},
		{&advisory.TimeoutError{Key: key, Cause: context.DeadlineExceeded}, 423, TypeBusy, "1"},
		{lease.ErrHeld, 423, TypeBusy, "1"},
		{fmt.Errorf("%w: %w", advisory.ErrPoolExhausted, advisory.ErrTimeout), 503, TypePool, "1"}, // after a wait
		{advisory.ErrPoolExhausted, 503, TypePool, "1"},
		{advisory.ErrUnavailable, 503, TypeUnavailable, "1"},
		{fmt.Errorf("%w: %w", advisory.ErrUnavailable, context.DeadlineExceeded), 503, TypeUnavailable, "1"},
		{advisory.ErrClosed, 503, TypeUnavailable, "1"},
		{advisory.ErrLockTableFull, 503, TypeUnavailable, "1"},
		{advisory.ErrStandby, 503, TypeUnavailable, "1"},
		{advisory.ErrRefused, 500, TypeRefused, ""},
		{&advisory.LostError{Key: key, Cause: advisory.ErrClosed}, 503, TypeLost, "1"},
		{&advisory.LostError{Cause: advisory.ErrUnavailable}, 503, TypeLost, "1"},
		{&leader.LostError{Cause: leader.ErrConnection}, 503, TypeLost, "1"},
		{lease.ErrStale, 503, TypeLost, "1"},
		{lease.ErrExpired, 503, TypeLost, "1"},
		{leader.ErrNotLeader, 503, TypeUnavailable, "1"},
		{leader.ErrPermanent, 500, TypeRefused, ""},
		{lease.ErrBusy, 503, TypeUnavailable, "1"},
		{advisory.ErrReentrant, 500, TypeMisuse, ""},
		{advisory.ErrDeadlock, 500, TypeMisuse, ""},
		{advisory.ErrReleased, 500, TypeMisuse, ""},
		{&namespace.Error{Sentinel: namespace.ErrInvalidKey}, 400, TypeNoEntity, ""},
		{context.Canceled, 503, TypeUnavailable, "1"},
		{&RequestError{Status: 404}, 404, typeBlank, ""},
		{&RequestError{Status: 200}, 500, typeBlank, ""},
		{&pgconn.PgError{Code: "57P03"}, 500, typeBlank, ""},
		{errors.New("a secret"), 500, typeBlank, ""},
	} {
		p := Problem(fmt.Errorf("wrapped: %w", row.err))
		assert.Equal(t, row.status, p.Status, row.err)
		assert.Equal(t, row.kind, p.Type, row.err)
		assert.Equal(t, row.retry, p.Header().Get("Retry-After"), row.err)
		assert.ErrorIs(t, p, row.err)
		assert.NotContains(t, string(p.Body()), "secret")

		rec := httptest.NewRecorder()
		p.Respond(rec)
		assert.Equal(t, p.Status, rec.Code)
		assert.Equal(t, p.Header(), rec.Header())
		assert.JSONEq(t, string(p.Body()), rec.Body.String())

		if row.kind == typeBlank { // of an acquisition it is PostgreSQL's
			row.status, row.kind = 503, TypeUnavailable
		}
		p = g.adjust(lockProblem(row.err), namespace.Key{})
		assert.Equal(t, row.status, p.Status, row.err)
		assert.Equal(t, row.kind, p.Type, row.err)
	}
	assert.Nil(t, Problem(held).Holder, "holders are shown where a Config says so")
}

func TestARefusalHasACodeOfGRPC(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err    error
		code   uint32
		reason string
	}{
		{advisory.ErrHeld, 10, "LOCK_BUSY"},
		{advisory.ErrLost, 10, "LOCK_LOST"}, // no Unavailable, which many clients repeat by themselves
		{advisory.ErrPoolExhausted, 14, "LOCK_POOL_EXHAUSTED"},
		{advisory.ErrUnavailable, 14, "LOCK_UNAVAILABLE"},
		{advisory.ErrRefused, 13, "LOCK_REFUSED"},
		{namespace.ErrInvalidKey, 3, "LOCK_NO_ENTITY"},
		{&RequestError{Status: 404}, 5, "NOT_FOUND"},
		{&RequestError{Status: 418}, 2, "I_M_A_TEAPOT"},
		{errors.New("unheard of"), 13, "INTERNAL_SERVER_ERROR"},
	} {
		p := Problem(row.err)
		assert.Equal(t, row.code, p.Code(), row.err)
		assert.Equal(t, row.reason, p.Reason(), row.err)
		assert.Contains(t, p.Message(), p.Title)
	}
	p := Problem(advisory.ErrHeld)
	p.Namespace, p.Entity, p.Holder = "agent", "42", &Holder{PID: 7, ApplicationName: "app\xff"}
	assert.Equal(t, map[string]string{
		"type": TypeBusy, "namespace": "agent", "entity": "42", "holder_pid": "7", "holder_application_name": "app\uFFFD",
	}, p.Metadata())
}

func TestAProblemReplacesTheHeadersOfTheHandler(t *testing.T) {
	t.Parallel()
	rec := httptest.NewRecorder()
	for _, name := range []string{"Content-Length", "Content-Encoding", "ETag", "Last-Modified", "Cache-Control"} {
		rec.Header().Set(name, "of the handler")
	}
	rec.Header().Set("X-Request-Id", "7")
	(&ProblemError{Type: typeBlank, Title: "Bad Request", Status: http.StatusBadRequest}).Respond(rec)
	assert.Equal(t, http.Header{
		"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"},
		"X-Content-Type-Options": {"nosniff"}, "X-Request-Id": {"7"},
	}, rec.Header())
	assert.JSONEq(t, `{"type": "about:blank", "title": "Bad Request", "status": 400, "holder": null}`, rec.Body.String())
}

func TestARawKeyIsNamedByItsText(t *testing.T) {
	t.Parallel()
	var p ProblemError
	key := namespace.Pair(1, 42)
	(&Gate{config: Config{Logger: slog.New(slog.DiscardHandler), ErrorHandler: func(http.ResponseWriter, *http.Request, *ProblemError) {}}}).
		refuse(nil, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/a%2Fb?token=x", nil), key, (&Gate{}).adjust(&p, key))
	assert.Empty(t, p.Namespace)
	assert.Equal(t, "1:42", p.Entity)
	assert.Equal(t, "/a%2Fb", p.Instance, "no query: it can hold secrets")
}
