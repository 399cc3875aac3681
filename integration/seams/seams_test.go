//go:build integration

package seams

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// An outcome says whether an error is the documented one.
type outcome func(err error) bool

// is accepts an error that matches all of these.
func is(targets ...error) outcome {
	return func(err error) bool {
		for _, target := range targets {
			if !errors.Is(err, target) {
				return false
			}
		}
		return true
	}
}

// state accepts an error of the server, or of a pooler, that has this SQLSTATE.
func state(code string) outcome {
	return func(err error) bool { return sqlstate.Of(err) == code }
}

// code accepts a command that ends so.
func code(code int) outcome {
	return func(err error) bool {
		e, ok := errors.AsType[*exit](err)
		return ok && e.code == code
	}
}

func TestEachEntryWorksOrRefuses(t *testing.T) {
	server := start(t)
	for _, around := range surroundings {
		t.Run(around.name, func(t *testing.T) {
			t.Parallel()
			site := around.make(t, server)
			for _, entry := range entries {
				if slices.Contains(around.elsewhere, entry.name) {
					continue
				}
				t.Run(entry.name, func(t *testing.T) {
					site := site
					if site.each != nil {
						site.dsn = site.each(t)
					}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					err := entry.use(ctx, t, site)
					if documented, refused := around.except[entry.name]; refused {
						require.Error(t, err, "it works, where a refusal is documented")
						assert.True(t, documented(err), "another error than the documented: %v (%[1]T)", err)
					} else {
						assert.NoError(t, err)
					}
					site.requireNothingLeft(t)
				})
			}
		})
	}
}

// Another program has the keys in another database of the server.
func TestLocksOfAnotherDatabaseHoldUpNothing(t *testing.T) {
	server := start(t)
	here, other, control := database(t, server), database(t, server), database(t, server)
	take := func(s site) (taken int) {
		rows, err := s.judge.Query(t.Context(), "SELECT pg_advisory_lock(1, k) FROM unnest(ARRAY[1, 2, 7, 9, 100]) k")
		require.NoError(t, err)
		for rows.Next() {
			taken++
		}
		require.NoError(t, rows.Err())
		return taken
	}
	require.Equal(t, 5, take(other))
	for _, entry := range entries {
		t.Run(entry.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.NoError(t, entry.use(ctx, t, here))
			here.requireNothingLeft(t)
		})
	}
	require.Equal(t, 5, take(control))
	l, err := open(t.Context(), control.dsn)
	require.NoError(t, err)
	defer l.Close()
	_, err = l.TryAcquire(t.Context(), agents.ID(1))
	require.ErrorIs(t, err, advisory.ErrHeld, "the control: in the same database it is held")
}

// alone are the entries that a lock of another entry would refuse, and those that look at who waits.
var alone = []string{"TryAcquire", "DoOrSkip", "try of LockTx", "Acquire of a held key", "LockTx of a held key", "try of LockTx of a held key", "pglatch try"}

// All share one database, and most share their keys: each gets its turn.
func TestAllFeaturesAtOnceInOneDatabase(t *testing.T) {
	s := database(t, start(t))
	t.Run("entries", func(t *testing.T) {
		for _, entry := range entries {
			if slices.Contains(alone, entry.name) {
				continue
			}
			t.Run(entry.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				assert.NoError(t, entry.use(ctx, t, s))
			})
		}
	})
	s.requireNothingLeft(t)
}

// What the other tests look for is found where it is.
func TestWhatIsLeftIsFoundControl(t *testing.T) {
	s := database(t, start(t))
	s.requireNothingLeft(t)
	other := admin(t, s.dsn)
	_, err := other.Exec(t.Context(), "SELECT pg_advisory_lock(1, 2)")
	require.NoError(t, err)
	require.Contains(t, s.left(t), "ExclusiveLock lock 1/2 of ")
	_, err = other.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	require.Contains(t, s.left(t), "in idle in transaction")
	for name, leave := range map[string]string{"a prepared statement": "PREPARE leftover AS SELECT 1", "a setting": "SET LOCAL lock_timeout = 7"} {
		require.ErrorContains(t, inTx(func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, leave)
			return err
		})(t.Context(), t, s), "the caller's session was", name)
	}
}
