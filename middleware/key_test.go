package middleware_test

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/echov4"
	"github.com/pglatch/pglatch/namespace"
)

func TestAMiddlewareThatSeesNoPathValueFailsClosed(t *testing.T) {
	t.Parallel()
	l := open(t, advisory.Config{DSN: pgtest.DSN(t)})
	lock := middleware.Must(byPath(l))

	e := echo.New()
	e.POST("/agents/:id", func(echo.Context) error { panic("unlocked") }, echo.WrapMiddleware(lock))
	mux := http.NewServeMux()
	mux.HandleFunc("/agents/{id}", func(http.ResponseWriter, *http.Request) { panic("unlocked") })
	for name, h := range map[string]http.Handler{"echo.WrapMiddleware": e, "around the mux": lock(mux)} {
		rec := post(t.Context(), h, "/agents/42")
		require.Equal(t, http.StatusBadRequest, rec.Code, name)
		p := problem(t, rec)
		assert.Equal(t, middleware.TypeNoEntity, p.Type)
		assert.Contains(t, p.Detail, `"id"`)
	}
	assert.Zero(t, l.Stats().Acquired)
}

func TestAnEscapedPathIsTheSameEntityOnEveryRouter(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t, advisory.Config{DSN: pgtest.DSN(t)})
			seen := make(chan namespace.Key, 1)
			handler := func(w http.ResponseWriter, r *http.Request) {
				for held := range l.Held() {
					seen <- held.Keys[0]
				}
				ok(w, r)
			}
			h := build(t, byPath(l), handler)
			e := echo.New()
			e.POST("/agents/:id", echo.WrapHandler(http.HandlerFunc(handler)), echov4.Lock(l, agents))
			text, err := agents.Text("acme/eu")
			require.NoError(t, err)
			for path, key := range map[string]namespace.Key{"/agents/4%32": agents.ID(42), "/agents/acme%2Feu": text} {
				require.Equal(t, http.StatusNoContent, post(t.Context(), e, path).Code)
				assert.Equal(t, key, receive(t, seen))
			}
			require.Equal(t, http.StatusNoContent, post(t.Context(), h, "/agents/42").Code)
			assert.Equal(t, agents.ID(42), receive(t, seen))
		})
	}
}

func TestTheBodyIsThereForTheHandler(t *testing.T) {
	t.Parallel()
	for name, build := range stacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := byPath(open(t, advisory.Config{DSN: pgtest.DSN(t)}))
			c.Key = func(r *http.Request) (namespace.Key, error) {
				body, err := middleware.BufferBody(r, 32)
				if err != nil {
					return namespace.Key{}, err
				}
				var hook struct{ Agent int64 }
				if json.Unmarshal(body, &hook) != nil {
					return namespace.Key{}, &middleware.RequestError{Status: http.StatusBadRequest, Detail: "The body is not JSON."}
				}
				return agents.ID(hook.Agent), nil
			}
			h := build(t, c, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
			for body, status := range map[string]int{
				`{"agent": 42}`:          http.StatusOK,
				`{"agent"`:               http.StatusBadRequest,
				strings.Repeat(" ", 100): http.StatusRequestEntityTooLarge,
			} {
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/agents/hook", strings.NewReader(body)))
				assert.Equal(t, status, rec.Code, body)
				if status == http.StatusOK {
					assert.Equal(t, body, rec.Body.String())
				}
			}
		})
	}
}

func TestBufferBody(t *testing.T) {
	t.Parallel()
	broken := iotest.ErrReader(errors.New("cut"))
	for name, row := range map[string]struct {
		body   io.Reader
		limit  int64
		status int // 0 = read
	}{
		"shorter":         {strings.NewReader("12"), 3, 0},
		"at the limit":    {strings.NewReader("123"), 3, 0},
		"longer":          {strings.NewReader("1234"), 3, http.StatusRequestEntityTooLarge},
		"empty":           {strings.NewReader(""), 0, 0},
		"no limit":        {strings.NewReader("1234"), math.MaxInt64, 0},
		"negative":        {strings.NewReader("1"), -1, http.StatusRequestEntityTooLarge},
		"cut":             {io.MultiReader(strings.NewReader("1"), broken), 3, http.StatusBadRequest},
		"an outer limit":  {http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("1234")), 2), 3, http.StatusRequestEntityTooLarge},
		"longer and then": {io.MultiReader(strings.NewReader("1234"), strings.NewReader("56")), 3, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", row.body)
			read, err := middleware.BufferBody(r, row.limit)
			all, readErr := io.ReadAll(r.Body)
			if row.status != 0 {
				var refusal *middleware.RequestError
				require.ErrorAs(t, err, &refusal)
				assert.Equal(t, row.status, refusal.Status)
				assert.Nil(t, read)
				assert.Equal(t, name == "cut" || name == "an outer limit", readErr != nil, "an error of the body stays one")
				return
			}
			require.NoError(t, err)
			require.NoError(t, readErr)
			assert.Equal(t, string(read), string(all), "put back")
			assert.NoError(t, r.Body.Close())
		})
	}
	read, err := middleware.BufferBody(&http.Request{}, 1)
	require.NoError(t, err)
	assert.Empty(t, read)
}
