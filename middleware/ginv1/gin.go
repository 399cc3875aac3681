package ginv1

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// Lock returns a Gin handler that takes the lock on the path parameter "id" for those
// behind it. It panics on a nil Locker and on the zero Namespace.
func Lock(locker *advisory.Locker, ns namespace.Namespace) gin.HandlerFunc {
	return wrap(middleware.Must(middleware.Config{Locker: locker, Key: middleware.PathValue(ns, "id")}))
}

// New returns a Gin handler that runs those behind it under the lock. Gin's parameters are
// path values of the request that Config.Key gets. It fails on a Config that is not valid,
// with an error that names the field.
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
			gc.Request = r // for the handlers outside: the other's context has ended
			if !ran {
				gc.Abort()
				gc.Writer.WriteHeader(http.StatusServiceUnavailable) // if nothing was written: else Gin sends an empty 200
			}
		}()
		for _, p := range gc.Params {
			r.SetPathValue(p.Key, p.Value)
		}
		lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			gc.Request, ran = r, true
			gc.Next()
			if gc.Writer.Written() {
				w.WriteHeader(gc.Writer.Status()) // tells only that there is an answer
			}
		})).ServeHTTP(gc.Writer, r)
	}
}
