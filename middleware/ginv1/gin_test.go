package ginv1_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/ginv1"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	leak.Main(m)
}

var agents = namespace.Must(1, "agent")

func serve(change func(*gin.Engine)) func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	return func(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
		t.Helper()
		lock, err := ginv1.New(s.Config)
		require.NoError(t, err)
		e := gin.New()
		change(e)
		e.Any("/agents/:id", lock, func(gc *gin.Context) { s.Handle(gc.Writer, gc.Request, gc.Param("id")) })
		return s.HTTP(t, e)
	}
}

func TestGinConforms(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*gin.Engine){
		"as it comes": func(*gin.Engine) {},
		"UseRawPath":  func(e *gin.Engine) { e.UseRawPath = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			middlewaretest.Run(t, middlewaretest.Framework{Serve: serve(change)})
		})
	}
}

func open() *advisory.Locker {
	// In a program, advisory.Open(ctx, advisory.Config{DSN: dsn}).
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		panic(err)
	}
	return locker
}

// gin.Recovery swallows http.ErrAbortHandler, and Gin would send an empty 200.
func TestAProgramThatCancelsARequestSendsNo200(t *testing.T) {
	t.Parallel()
	locker := open()
	defer locker.Close()
	e := gin.New()
	e.Use(gin.CustomRecoveryWithWriter(io.Discard, func(*gin.Context, any) {}), func(gc *gin.Context) {
		ctx, cancel := context.WithCancel(gc.Request.Context())
		cancel()
		gc.Request = gc.Request.WithContext(ctx)
	})
	e.POST("/agents/:id", ginv1.Lock(locker, agents), func(*gin.Context) { assert.Fail(t, "it runs") })
	server := httptest.NewServer(e)
	defer server.Close()
	resp, err := server.Client().Post(server.URL+"/agents/42", "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
}

// Where Gin resolves the escapes it reads a plus as a space, as in a query. The lock is that
// of what the handler sees.
func TestAPlusIsASpaceForTheLockIfItIsOneForTheHandler(t *testing.T) {
	t.Parallel()
	locker := open()
	defer locker.Close()
	for plus, escaped := range map[string]bool{"a+b": false, "a b": true} {
		e := gin.New()
		e.UseEscapedPath = escaped
		e.POST("/agents/:id", ginv1.Lock(locker, agents), func(gc *gin.Context) {
			assert.Equal(t, plus, gc.Param("id"))
			for held := range locker.Held() {
				assert.Equal(t, plus, held.Keys[0].Entity())
			}
			gc.String(http.StatusOK, "done")
		})
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/agents/a+b", nil))
		assert.Equal(t, http.StatusOK, w.Code)
	}
}

func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	assert.Panics(t, func() { ginv1.Lock(nil, agents) })
	locker := open()
	defer locker.Close()
	_, err := ginv1.New(middleware.Config{Locker: locker})
	assert.ErrorContains(t, err, "Key is nil")
}

func ExampleLock() {
	gin.SetMode(gin.ReleaseMode)
	locker := open()
	defer locker.Close()
	r := gin.New()
	r.POST("/agents/:id/stop", ginv1.Lock(locker, agents), func(c *gin.Context) {
		c.String(http.StatusOK, "stopped "+c.Param("id"))
	})

	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/agents/42/stop", nil))
	fmt.Println(w.Code, w.Body)
	// Output: 200 stopped 42
}
