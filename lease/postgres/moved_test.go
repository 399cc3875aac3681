package postgres_test

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// PostgreSQL drops a FOR KEY SHARE that is taken while a renewal has the row and writes elsewhere,
// to another page or to its TOAST table, what the row is to be.
func TestAGuardThatComesWhileARenewalMovesTheRowHoldsUpTheNextLease(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	for i := range soak.Size(t, 10, 40) {
		require.False(t, m.passesGuard(strconv.Itoa(i)), "the lease passed on beside a guarded transaction")
	}
}

func TestARowThatMovesDropsTheLocksOfGuardsThatHaveNoOther(t *testing.T) {
	t.Parallel()
	m := newMover(t)
	m.unlockGuards()
	for i := 0; !m.passesGuard(strconv.Itoa(i)); i++ {
		require.Less(t, i, 5000, "no lock was dropped")
	}
}

// unlockGuards leaves guards nothing but the lock of the row.
func (j judge) unlockGuards() {
	j.exec(`DO $$ BEGIN EXECUTE replace(pg_get_functiondef('pglatch_lease.guard(text, text, text, bigint)'::regprocedure),
		'pg_advisory_xact_lock_shared(', '('); END $$`)
}

// A mover is a store whose rows are moved by each change, for some milliseconds.
type mover struct {
	judge
	patient, hasty *postgres.Store
}

func newMover(t *testing.T) mover {
	t.Helper()
	dsn := pgtest.DSN(t)
	patient, j := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = patience }), newJudge(t, dsn)
	require.NoError(t, patient.Migrate(t.Context()))
	j.exec(`ALTER TABLE pglatch_lease.locks ADD COLUMN ballast text;
		ALTER TABLE pglatch_lease.locks ALTER COLUMN ballast SET STORAGE EXTERNAL;
		CREATE FUNCTION load() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.ballast := repeat(''x'', 400000); RETURN NEW; END';
		CREATE TRIGGER load BEFORE UPDATE ON pglatch_lease.locks FOR EACH ROW EXECUTE FUNCTION load()`)
	return mover{j, patient, open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 10 * time.Millisecond })}
}

// passesGuard reports whether a lease passes on beside a transaction that was guarded while it
// was renewed.
func (m mover) passesGuard(name string) bool {
	m.t.Helper()
	ctx := m.t.Context()
	claim := acquire(m.t, m.patient, name, "a").Claim
	var renewal sync.WaitGroup
	renewal.Go(func() {
		_, err := m.patient.Renew(ctx, lease.RenewRequest{Claim: claim, TTL: 2 * ttl})
		assert.NoError(m.t, err)
	})
	<-time.After(rand.N(10 * time.Millisecond))
	tx := m.begin()
	require.NoError(m.t, postgres.Guard(ctx, tx, claim))
	renewal.Wait()
	require.NoError(m.t, m.patient.Release(ctx, claim))
	_, err := m.hasty.Acquire(ctx, lease.AcquireRequest{Name: name, Holder: "b", TTL: ttl})
	require.NoError(m.t, tx.Rollback(ctx))
	if !errors.Is(err, lease.ErrBusy) {
		require.NoError(m.t, err)
	}
	return err == nil
}
