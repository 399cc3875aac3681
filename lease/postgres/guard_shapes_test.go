package postgres_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/txshapes"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// oddName has what placeholders and literals look like in SQL and in libraries.
const oddName = `a's $1 ? ?0 :name @name {{x}} %s \ "q"`

// guardAny guards what has the methods of a transaction.
func guardAny(ctx context.Context, tx any, c lease.Claim) error {
	if tx, ok := tx.(postgres.PgxTx); ok {
		return postgres.Guard(ctx, tx, c)
	}
	return postgres.GuardSQL(ctx, tx.(postgres.SQLTx), c)
}

// guarded reports whether somebody has locked the row of a name.
func (j judge) guarded(name string) bool {
	j.t.Helper()
	return one[int](j, "SELECT count(*) FROM (SELECT FROM pglatch_lease.locks WHERE name = $1 FOR UPDATE SKIP LOCKED) AS free", name) == 0
}

func TestWhatIsNotInATransactionIsNotGuarded(t *testing.T) {
	t.Parallel()
	txshapes.InEveryMode(t, pgtest.DSN, func(b txshapes.Base, dsn string) {
		s, j := newStore(b, dsn), newJudge(b, dsn)
		claim := acquire(b, s, oddName, "a").Claim
		b.Each(txshapes.None, func(t *testing.T, _ string, tx any) {
			t.Helper()
			err := guardAny(t.Context(), tx, claim)
			require.ErrorIs(t, err, postgres.ErrNoTransaction)
			require.ErrorContains(t, err, "pass a transaction")
			for _, other := range []error{lease.ErrStale, lease.ErrExpired, lease.ErrNotFound, lease.ErrBusy, lease.ErrNotReady} {
				require.NotErrorIs(t, err, other)
			}
			assert.False(t, j.guarded(oddName))
		})
	})
}

func TestWhatIsInATransactionIsGuarded(t *testing.T) {
	t.Parallel()
	txshapes.InEveryMode(t, pgtest.DSN, func(b txshapes.Base, dsn string) {
		s, j := newStore(b, dsn), newJudge(b, dsn)
		claim := acquire(b, s, oddName, "a").Claim
		stale := claim
		stale.Token++
		b.Each(txshapes.Begun, func(t *testing.T, name string, tx any) {
			t.Helper()
			if name == txshapes.ReadOnly {
				require.ErrorIs(t, guardAny(t.Context(), tx, claim), lease.ErrInvalid)
				return
			}
			require.NoError(t, guardAny(t.Context(), tx, claim))
			require.NoError(t, guardAny(t.Context(), tx, claim), "again")
			assert.True(t, j.guarded(oddName))
			require.Equal(t, &lease.StaleError{Name: oddName, Token: true}, guardAny(t.Context(), tx, stale))
			require.ErrorContains(t, txshapes.Exec(t.Context(), tx, "SELECT 1"), "25P02")
			require.NoError(t, txshapes.Exec(t.Context(), tx, "ROLLBACK"))
			assert.False(t, j.guarded(oddName))
		})
	})
}
