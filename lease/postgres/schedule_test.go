package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// beginAt begins a transaction that has its snapshot.
func (j judge) beginAt(level pgx.TxIsoLevel) pgx.Tx {
	j.t.Helper()
	tx, err := j.pool.BeginTx(context.Background(), pgx.TxOptions{IsoLevel: level})
	require.NoError(j.t, err)
	j.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(context.Background(), "SELECT count(*) FROM report")
	require.NoError(j.t, err)
	return tx
}

// waits runs what has to wait for a row, and returns when it does. The returned function
// waits for its end.
func (j judge) waits(what func() error) (end func()) {
	j.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- what() }()
	j.rowWaiter()
	return func() {
		j.t.Helper()
		require.NoError(j.t, <-ended)
	}
}

// changeToken renews a lease, and then changes its token by hand while a guarded transaction is under way. The
// change waits for that.
func (j judge) changeToken(s *postgres.Store, c lease.Claim) {
	j.t.Helper()
	_, err := s.Renew(j.t.Context(), lease.RenewRequest{Claim: c, TTL: 2 * ttl})
	require.NoError(j.t, err)
	inFlight := j.begin()
	require.NoError(j.t, postgres.Guard(j.t.Context(), inFlight, c))
	end := j.waits(func() error {
		_, err := j.pool.Exec(context.Background(), `DO $$ BEGIN
			BEGIN PERFORM FROM pglatch_lease.locks WHERE name = '`+c.Name+`' FOR UPDATE; EXCEPTION WHEN division_by_zero THEN NULL; END;
			UPDATE pglatch_lease.locks SET token = token + 1 WHERE name = '`+c.Name+`'; END $$`)
		return err
	})
	require.NoError(j.t, inFlight.Commit(j.t.Context()))
	end()
}

// Without the index a change of the token is none of a key where the row's lock was taken in a
// subtransaction, and the guard passes beside a later lease.
func TestAGuardDependsOnTheIndexOfTheTokens(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	j := newJudge(t, dsn)
	newStore(t, dsn)
	s := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = patience })
	j.exec("CREATE TABLE report (written_by text)")
	for _, indexed := range []bool{true, false} {
		if !indexed { // the control
			j.exec("DROP INDEX pglatch_lease.locks_token")
			j.unguardSnapshots()
		}
		for _, level := range levels[1:] {
			c := acquire(t, s, fmt.Sprint(level, indexed), "a").Claim
			late := j.beginAt(level)
			j.changeToken(s, c)
			err := postgres.Guard(t.Context(), late, c)
			if indexed {
				require.ErrorIs(t, err, lease.ErrStale)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, late.Commit(t.Context()), "a stale write")
		}
	}
}

// unguardSnapshots makes guards take for the present what their snapshot shows.
func (j judge) unguardSnapshots() {
	j.exec(`CREATE OR REPLACE FUNCTION pglatch_lease.guard_snapshot(p_name text, p_holder text, p_id text, p_token bigint) RETURNS bool
		LANGUAGE sql AS 'SELECT false'`)
}

// A snapshot that is older than the claim shows the name's lease before, or none.
func TestAGuardInATransactionThatBeganBeforeTheClaimIsTriedAgain(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	s, j := newStore(t, dsn), newJudge(t, dsn)
	j.exec("CREATE TABLE report (written_by text)")
	cycle(t, s, "known")
	cycle(t, s, "forgotten")
	old := acquire(t, s, "gone", "a").Claim
	j.expire("gone")
	_, err := s.Sweep(t.Context(), lease.SweepRequest{Retention: 1})
	require.NoError(t, err)
	cycle(t, s, "known")
	for _, level := range levels {
		for _, name := range []string{"known", "new " + string(level), "forgotten"} {
			tx := j.beginAt(level)
			claim := acquire(t, s, name, "a").Claim
			err := postgres.Guard(t.Context(), tx, claim)
			if level == pgx.ReadCommitted {
				require.NoError(t, err, name)
			} else {
				assert.IsType(t, &lease.BusyError{}, errors.Unwrap(err), "%s: %v", name, err)
			}
			require.NoError(t, tx.Rollback(t.Context()))
			require.NoError(t, j.guardOnce(level, claim), "tried again")
			require.NoError(t, s.Release(t.Context(), claim))
		}
		// What was forgotten before the snapshot is certain.
		assert.Equal(t, &lease.NotFoundError{Name: "gone"}, j.guardOnce(level, old))
	}
}

// guardOnce guards a transaction that has its snapshot, and ends it.
func (j judge) guardOnce(level pgx.TxIsoLevel, c lease.Claim) error {
	j.t.Helper()
	tx := j.beginAt(level)
	defer func() { _ = tx.Rollback(context.Background()) }()
	return postgres.Guard(context.Background(), tx, c)
}

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

func TestNoGuardedWriteFollowsOneOfALaterTokenWhateverTheIsolationLevels(t *testing.T) {
	t.Parallel()
	writes, stale := stressGuards(t, func(judge) {}, 400)
	assert.Zero(t, stale, "of %d writes", writes)
}

// The control: until it has found some, for as long as it takes.
func TestTheStressFindsGuardsWithoutTheIndexOnTheToken(t *testing.T) {
	t.Parallel()
	_, stale := stressGuards(t, func(j judge) {
		j.exec("DROP INDEX pglatch_lease.locks_token")
		j.unguardSnapshots()
		j.unlockGuards()
	}, 100_000)
	assert.Positive(t, stale)
}

// stressGuards has clients take one lease from each other, by releases and expiries, each of which has guarded
// transactions of random isolation levels in flight, some with a snapshot from before,
// until enough have written or a write under a token followed one under a later token, for as long as it takes.
func stressGuards(t *testing.T, change func(judge), enough int64) (writes, stale int) {
	t.Helper()
	dsn := pgtest.DSN(t) + "&pool_max_conns=32"
	newStore(t, dsn)
	j := newJudge(t, dsn)
	s := open(t, dsn, func(c *postgres.Config) { c.LockTimeout = 10 * time.Second })
	change(j)
	j.exec("CREATE TABLE report (n bigserial, token bigint)")
	count := func() int {
		return one[int](j, "SELECT count(*) FROM (SELECT token < max(token) OVER (ORDER BY n) AS stale FROM report) AS t WHERE stale")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var written atomic.Int64
	write := func(c lease.Claim, early bool, between func()) error {
		tx, err := j.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: levels[rand.IntN(len(levels))]})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		if early {
			if _, err := tx.Exec(ctx, "SELECT 1 FROM report LIMIT 1"); err != nil {
				return err
			}
		}
		between()
		if err := postgres.Guard(ctx, tx, c); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO report (token) VALUES ($1)", int64(c.Token)); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		written.Add(1)
		return nil
	}
	turn := func() error {
		r := lease.AcquireRequest{Name: "x", Holder: "h", TTL: ttl}
		expires := rand.IntN(8) == 0
		if expires {
			r.TTL = 20 * time.Millisecond
		}
		l, err := s.Acquire(ctx, r)
		if err != nil {
			return err
		}
		released := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 { // in order, late, and in between
			wg.Go(func() { _ = write(l.Claim, true, func() { <-released }) })
			wg.Go(func() { _ = write(l.Claim, false, func() {}) })
		}
		switch {
		case expires:
			<-time.After(r.TTL)
		case rand.IntN(2) == 0:
			_, err = s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: ttl})
			fallthrough
		default:
			err = errors.Join(err, s.Release(ctx, l.Claim))
		}
		close(released)
		wg.Wait()
		return err
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil && written.Load() < enough {
				err := turn()
				if err != nil && ctx.Err() == nil && !errors.Is(err, lease.ErrHeld) && !errors.Is(err, lease.ErrBusy) {
					assert.NoError(t, err)
					return
				}
				if enough > 1000 && count() > 0 {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	writes, stale = one[int](j, "SELECT count(*) FROM report"), count()
	if stale == 0 {
		require.GreaterOrEqual(t, writes, int(enough))
	}
	return writes, stale
}
