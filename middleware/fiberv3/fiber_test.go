package fiberv3_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/fiberv3"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

var agents = namespace.Must(1, "agent")

func serve(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	t.Helper()
	param := fiberv3.Param(middlewaretest.Agents, "id")
	lock, err := fiberv3.New(s.Config, func(c fiber.Ctx) (namespace.Key, error) { return s.Key(param(c)) })
	require.NoError(t, err)
	app := fiber.New(fiber.Config{ReadBufferSize: 1 << 20})
	app.Use(func(c fiber.Ctx) error {
		defer func() {
			if value := recover(); value != nil {
				s.Panicked(value)
				c.Status(http.StatusInternalServerError)
			}
		}()
		return c.Next()
	})
	app.All("/agents/:id", lock, func(c fiber.Ctx) error {
		text := s.Handler(middlewaretest.Exchange{Context: c.Context(), ID: c.Params("id")})
		if text == "" {
			return nil
		}
		return c.SendString(text)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		assert.NoError(t, app.Shutdown())
		assert.NoError(t, <-ended)
	})
	return middlewaretest.HTTPServer(t, listener.Addr().String())
}

func TestFiberConforms(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{
		Serve: serve,
		Without: map[middlewaretest.Ability]string{
			middlewaretest.SeesDisconnects: "fasthttp does not look at a connection while a handler runs",
			middlewaretest.Streams:         "an answer is sent when the handlers have returned",
			middlewaretest.Hijacks:         "a connection is taken over when the handlers have returned",
			middlewaretest.ErrorHandlers:   "Fiber has no http.ResponseWriter",
		},
	})
}

func open() *advisory.Locker {
	// In a program, advisory.Open(ctx, advisory.Config{DSN: dsn}).
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		panic(err)
	}
	return locker
}

// patient is for app.Test, which else waits one second for an answer.
var patient = fiber.TestConfig{Timeout: time.Minute, FailOnTimeout: true}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { fiberv3.Lock(nil, agents) })
	_, err := fiberv3.New(middleware.Config{}, fiberv3.Param(agents, "id"))
	assert.ErrorContains(t, err, "Locker is nil")
	_, err = fiberv3.New(middleware.Config{Locker: new(advisory.Locker)}, nil)
	assert.ErrorContains(t, err, "key is nil")
}

func TestHandlersErrorsGoToFiber(t *testing.T) {
	t.Parallel()
	locker := open()
	defer locker.Close()
	app := fiber.New()
	app.Post("/agents/:id", fiberv3.Lock(locker, agents), func(fiber.Ctx) error { return fiber.ErrTeapot })
	resp, err := app.Test(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/agents/42", nil), patient)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusTeapot, resp.StatusCode)
}

// The handler's parameter decides which lock is taken, not the rest of the path or the query.
// Without UnescapePath the parameter is escaped, and the lock is that of the text it stands for.
func TestTheLockIsThatOfTheHandlersParameterWhateverElseIsInTheURL(t *testing.T) {
	t.Parallel()
	locker := open()
	defer locker.Close()
	for _, c := range []struct {
		path, escaped, unescaped string // what the handler sees without UnescapePath, and with it
		lock                     string // without it
	}{
		{"/agents/42/x", "42", "42", "42"},
		{"/agents/4%32/x", "4%32", "42", "42"},
		{"/agents/a+b/x", "a+b", "a b", "a+b"},
		{"/agents/%2561/x", "%2561", "%61", "%61"},
		{"/agents/%2561/x?q=%61", "%2561", "%61", "%61"},
		{"/agents/%2561/%61", "%2561", "%61", "%61"},
		{"/agents/%zz/x", "%zz", "%zz", "%zz"},
	} {
		for _, unescape := range []bool{false, true} {
			sees, locks := c.escaped, c.lock
			if unescape {
				sees, locks = c.unescaped, c.unescaped
			}
			ran := false
			app := fiber.New(fiber.Config{UnescapePath: unescape})
			app.Post("/agents/:id/:file", fiberv3.Lock(locker, agents), func(c fiber.Ctx) error {
				ran = true
				assert.Equal(t, sees, c.Params("id"), c.OriginalURL())
				for held := range locker.Held() {
					want, err := agents.Text(locks)
					assert.NoError(t, err)
					assert.Equal(t, []namespace.Key{want}, held.Keys, "%s, UnescapePath = %v", c.OriginalURL(), unescape)
				}
				return nil
			})
			resp, err := app.Test(raw(t, c.path), patient)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.True(t, ran, c.path)
		}
	}
}

// raw is a request for a path whose escapes may be wrong.
func raw(t *testing.T, path string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.RequestURI = path
	return r
}

func ExampleLock() {
	locker := open()
	defer locker.Close()
	app := fiber.New()
	app.Post("/agents/:id/stop", fiberv3.Lock(locker, agents), func(c fiber.Ctx) error {
		return c.SendString("stopped " + c.Params("id"))
	})

	resp, err := app.Test(httptest.NewRequest(http.MethodPost, "/agents/42/stop", nil), fiber.TestConfig{})
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output: 200
}
