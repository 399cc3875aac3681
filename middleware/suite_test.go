package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// direct is an RPC framework without a network: clients call the gate.
func direct(t *testing.T, s middlewaretest.Setup) middlewaretest.Server {
	t.Helper()
	g, err := middleware.NewGate(s.Config)
	require.NoError(t, err)
	entity := middleware.Entity(middlewaretest.Agents, "id")
	return middlewaretest.Server{Call: func(ctx context.Context, id string) (a middlewaretest.Answer, err error) {
		defer func() {
			if value := recover(); value != nil {
				s.Panicked(value)
				err = fmt.Errorf("panic: %v", value)
			}
		}()
		key, err := s.Key(entity(id))
		err = g.Do(ctx, key, err, func(ctx context.Context) error {
			a.Text = s.Handler(middlewaretest.Exchange{Context: ctx, ID: id})
			return nil
		})
		if p, ok := errors.AsType[*middleware.ProblemError](err); ok {
			a = middlewaretest.Answer{Status: int(p.Code()), Type: p.Type, RetryAfter: p.Retry()}
			if p.Holder != nil {
				a.HolderPID = p.Holder.PID
			}
			return a, nil
		}
		if err == nil {
			err = ctx.Err() // nobody is there
		}
		return a, err
	}}
}

func TestAGateConformsWithoutNetHTTPOnPostgreSQL(t *testing.T) {
	t.Parallel()
	middlewaretest.Run(t, middlewaretest.Framework{
		Serve: direct, RPC: true, Database: database,
		Without: map[middlewaretest.Ability]string{middlewaretest.Streams: "a call of a function has one result"},
	})
}

func TestAGateReturnsWhatItsFunctionReturned(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	l := open(t, advisory.Config{DSN: dsn})
	g, err := middleware.NewGate(middleware.Config{Locker: l})
	require.NoError(t, err)
	failed := errors.New("failed")
	err = g.Do(t.Context(), agents.ID(42), nil, func(context.Context) error { return failed })
	assert.Equal(t, failed, err)

	err = g.Do(t.Context(), agents.ID(42), nil, func(ctx context.Context) error {
		terminate(t, dsn, l)
		receive(t, ctx.Done())
		return failed
	})
	require.ErrorIs(t, err, advisory.ErrLost)
	require.ErrorIs(t, err, failed, "the program gets both")
	p, ok := errors.AsType[*middleware.ProblemError](err)
	require.True(t, ok)
	assert.Equal(t, middleware.TypeLost, p.Type)
	assert.NotContains(t, string(p.Body()), "failed")
}
