package postgres_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/guardtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

func TestGuardsOfShardsStandAllAttacks(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, guardtest.Guard{Open: openTerms, Ended: leader.ErrNotLeader, Lasts: true, ReadOnly: true, Elsewhere: `relation "public.pglatch_shard" does not exist`, TTL: ttl})
}

// terms are the terms of one shard, whose nodes have one session each.
type terms struct {
	judge    judge
	dsn      string
	shard    string
	sessions map[string]driver.Session
}

func openTerms(tb testing.TB, dsn string, number int) guardtest.Rights {
	tb.Helper()
	return &terms{newJudge(tb, dsn), dsn, guardtest.OddName + strconv.Itoa(number), map[string]driver.Session{}}
}

func (s *terms) session(holder string) driver.Session {
	session := s.sessions[holder]
	if session == nil {
		session = open(s.judge.TB(), newBackend(s.judge.TB(), s.dsn, nil), holder)
		s.sessions[holder] = session
	}
	return session
}

func (s *terms) Begin(tb testing.TB, holder string) guardtest.Right {
	tb.Helper()
	session := s.session(holder)
	var grants []driver.Grant
	await.Until(tb, patience, func() bool {
		var err error
		grants, err = session.Claim(tb.Context(), []string{s.shard})
		if !errors.Is(err, driver.ErrUnclaimable) {
			require.NoError(tb, err)
		}
		return len(grants) == 1
	})
	work := session.(driver.Binder).Bind(context.Background(), grants[0])
	return guardtest.Right{
		Functions: guardtest.Functions{Guard: postgres.Guard, GuardSQL: postgres.GuardSQL, InTx: postgres.InTxOptions, InSQLTx: postgres.InSQLTxOptions}.Of(work),
		Outlives: map[string]func(testing.TB){"a renewal": func(tb testing.TB) {
			tb.Helper()
			lost, err := session.Renew(tb.Context(), ttl)
			require.NoError(tb, err)
			require.Empty(tb, lost)
		}},
		Ends: map[string]guardtest.End{
			"a release": {Do: func(tb testing.TB) {
				tb.Helper()
				release(tb, session, s.shard)
			}},
			"the end of the session": {Do: func(tb testing.TB) {
				tb.Helper()
				s.judge.Terminate(postgres.PIDOf(session))
				s.sessions[holder] = nil
			}},
		},
	}
}

func (s *terms) Blocked(tb testing.TB, holder string) {
	tb.Helper()
	await.Until(tb, patience, func() bool {
		grants, err := s.session(holder).Claim(tb.Context(), []string{s.shard})
		require.Empty(tb, grants, "somebody owns the shard beside a guarded transaction")
		_, guarded := errors.AsType[*postgres.GuardedError](err)
		return guarded
	})
}
