package ginv1

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// Lock returns a Gin handler that runs the handlers after it under the lock on the path parameter
// "id". It panics on a nil Locker and on the zero Namespace.
func Lock(locker *advisory.Locker, ns namespace.Namespace) gin.HandlerFunc {
	return wrap(middleware.Must(middleware.Config{Locker: locker, Key: middleware.PathValue(ns, "id")}))
}

// New returns a Gin handler that runs the handlers after it under the lock. Config.Key receives a
// request whose path values are Gin's parameters. If the Config is not valid, New returns a
// *middleware.ConfigError.
func New(c middleware.Config) (gin.HandlerFunc, error) {
	lock, err := middleware.New(c)
	if err != nil {
		return nil, err
	}
	return wrap(lock), nil
}

func wrap(lock func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(gc *gin.Context) {
		r, ran := gc.Request, false
		defer func() {
			gc.Request = r // for the outer handlers: the inner request's context has ended
			if !ran {
				gc.Abort()
				gc.Writer.WriteHeader(http.StatusServiceUnavailable) // if nothing was written: otherwise Gin sends an empty 200
			}
		}()
		for _, p := range gc.Params {
			r.SetPathValue(p.Key, p.Value)
		}
		lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			gc.Request, ran = r, true
			gc.Next()
			if gc.Writer.Written() {
				w.WriteHeader(gc.Writer.Status()) // shows only that there is an answer
			}
		})).ServeHTTP(gc.Writer, r)
	}
}
