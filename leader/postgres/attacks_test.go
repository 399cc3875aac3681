package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/guardtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func TestGuardsOfElectionsStandAllAttacks(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardtest.Guard{Open: openTerms, Ended: leader.ErrNotLeader, Elsewhere: "the term has ended", TTL: ttl})
}

// terms are the terms of an election, whose candidates have one backend each.
type terms struct {
	judge    judge
	dsn      string
	key      namespace.Key
	backends map[string]*postgres.Backend
}

func openTerms(tb testing.TB, dsn string, number int) guardtest.Rights {
	tb.Helper()
	return &terms{newJudge(tb, dsn), dsn, namespace.Pair(1, int32(100+number)), map[string]*postgres.Backend{}}
}

func (e *terms) backend(holder string) *postgres.Backend {
	b := e.backends[holder]
	if b == nil {
		b = newBackend(e.judge.t, e.dsn, func(c *postgres.Config) { c.Key = e.key })
		e.backends[holder] = b
	}
	return b
}

func (e *terms) Begin(tb testing.TB, holder string) guardtest.Right {
	tb.Helper()
	b := e.backend(holder)
	await.Until(tb, patience, func() bool {
		ctx, cancel := context.WithTimeout(tb.Context(), patience)
		defer cancel()
		won, _ := b.TryAcquire(ctx, holder, ttl) // the session of its last term may have ended
		return won
	})
	return guardtest.Right{
		Functions: guardtest.Functions{Guard: postgres.Guard, GuardSQL: postgres.GuardSQL, InTx: postgres.InTxOptions, InSQLTx: postgres.InSQLTxOptions}.Of(b.Bind(context.Background())),
		Outlives: map[string]func(testing.TB){"a renewal": func(tb testing.TB) {
			tb.Helper()
			require.NoError(tb, b.Renew(tb.Context(), holder, ttl))
		}},
		Ends: map[string]guardtest.End{
			"a release": {Do: func(tb testing.TB) {
				tb.Helper()
				release(tb, b, holder)
			}},
			"the end of the session": {Do: func(tb testing.TB) {
				tb.Helper()
				classid, objid := e.key.Tag().ClassID, e.key.Tag().ObjID
				e.judge.terminate(one[int](e.judge, `SELECT min(pid)`+here+` AND classid = $1 AND objid = $2 AND objsubid = 2 AND granted`, classid, objid))
			}},
		},
	}
}

func (e *terms) Blocked(tb testing.TB, holder string) {
	tb.Helper()
	b, limit := e.backend(holder), 20*time.Millisecond
	await.Until(tb, patience, func() bool {
		ctx, cancel := context.WithTimeout(tb.Context(), limit)
		defer cancel()
		limit *= 2 // a busy machine
		won, err := b.TryAcquire(ctx, holder, ttl)
		require.False(tb, won, "somebody leads beside a guarded transaction")
		return errors.Is(err, driver.ErrPending)
	})
}
