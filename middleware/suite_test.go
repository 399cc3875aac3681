package middleware_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/middlewaretest"
)

// database is a PostgreSQL for the conformance suite.
func database(t *testing.T) middlewaretest.Database {
	t.Helper()
	dsn := pgtest.DSN(t)
	return middlewaretest.Database{
		Open: func(c advisory.Config) (*advisory.Locker, error) {
			c.DSN = dsn
			return advisory.Open(t.Context(), c)
		},
		Kill: func(pid uint32) {
			conn, err := pgx.Connect(t.Context(), dsn)
			if assert.NoError(t, err) {
				defer conn.Close(context.WithoutCancel(t.Context()))
				_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int64(pid))
				assert.NoError(t, err)
			}
		},
	}
}

func serveMux(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/agents/{id}", middleware.Must(s.Config)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handle(w, r, r.PathValue("id"))
	})))
	return s.HTTP(t, mux)
}

func TestNetHTTPConformsOnPostgreSQL(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{Serve: serveMux, Database: database})
}

func TestNetHTTPConforms(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{Serve: serveMux})
}
