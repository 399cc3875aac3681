package postgres_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

func TestAClaimThatFailsLeavesNoLocksAndWhatWasClaimedBefore(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	s := open(t, newBackend(t, dsn, nil), "a")
	first := claim(t, s, "1")["1"]
	// Locks are taken before the rows are written.
	judge.Exec(`ALTER TABLE pglatch_shard ADD CONSTRAINT broken CHECK (name = '1')`)
	_, err := s.Claim(t.Context(), []string{"2", "three"})
	require.ErrorContains(t, err, "broken")
	assert.Equal(t, 1, judge.locks())
	judge.Exec(`ALTER TABLE pglatch_shard DROP CONSTRAINT broken`)
	assert.Len(t, claim(t, s, "2", "three"), 2)
	release(t, s, "1")
	assert.Equal(t, 1, claim(t, s, "1")["1"].Compare(first))
}

func TestTwoNamesOfOneKeyAreNeverOne(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := open(t, newBackend(t, dsn, nil), "a"), open(t, newBackend(t, dsn, nil), "b")
	const upper, lower = "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	require.Contains(t, claim(t, a, lower), lower)
	assert.Len(t, claim(t, b, upper, "1"), 1, "the others are claimed all the same")
	_, err := b.Claim(t.Context(), []string{upper})
	var clash *postgres.ClashError
	require.ErrorAs(t, err, &clash)
	assert.Equal(t, lower, clash.Other)
	release(t, a, lower)
	_, err = b.Claim(t.Context(), []string{upper})
	require.ErrorAs(t, err, &clash, "the terms of the other are counted under this key")
}

func TestTablesThatAreMissingAreSaidAtOnce(t *testing.T) {
	t.Parallel()
	b := newBackend(t, pgtest.DSN(t), func(c *postgres.Config) { c.CreateTable = false })
	_, err := b.Open(t.Context(), member("a"), ttl)
	require.ErrorIs(t, err, leader.ErrPermanent)
	var table *postgres.TableError
	require.ErrorAs(t, err, &table)
	assert.True(t, table.Missing)
	require.NoError(t, b.Migrate(t.Context()))
	require.NoError(t, b.Migrate(t.Context()), "it can be repeated")
	open(t, b, "a")
}

func TestTablesThatLackAColumnAreRefused(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"pglatch_shard DROP COLUMN written", "pglatch_shard_member DROP COLUMN refuses", "pglatch_shard_order DROP COLUMN identity"} {
		dsn := pgtest.DSN(t)
		newJudge(t, dsn).Exec(postgres.Schema("") + "; ALTER TABLE " + column)
		b := newBackend(t, dsn, nil)
		_, opened := b.Open(t.Context(), member("a"), ttl)
		for _, err := range []error{opened, b.Migrate(t.Context())} {
			var table *postgres.TableError
			require.ErrorAs(t, err, &table, column)
			assert.True(t, table.Outdated)
			require.ErrorIs(t, err, leader.ErrPermanent)
			require.ErrorContains(t, err, "lacks a column that this version needs")
		}
	}
}

// stuck has a transaction that inserts the row of shard 1, for which a claim of it waits under its lock.
func (j judge) stuck() (free func()) {
	j.TB().Helper()
	tx, err := j.Pool.Begin(context.Background())
	require.NoError(j.TB(), err)
	_, err = tx.Exec(context.Background(), `INSERT INTO pglatch_shard VALUES ('tenant=7', '1', (7::bigint << 32) + 1, 1, 1, 1, 1, now(), '', 1, now())`)
	require.NoError(j.TB(), err)
	free = func() { _ = tx.Rollback(context.Background()) }
	j.TB().Cleanup(free)
	return free
}

// claimsAndWaits begins a claim and returns once it waits for a row and has more locks than before. The server bounds that wait: if
// it ends the claim before anybody sees the wait, the next claim begins.
func (j judge) claimsAndWaits(ctx context.Context, s driver.Session, names ...string) (failed <-chan error) {
	j.TB().Helper()
	pid, before, ended := postgres.PIDOf(s), j.locks(), make(chan error, 1)
	try := func() { _, err := s.Claim(ctx, names); ended <- err }
	go try()
	for !dbtest.Ask[bool](j, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock')
		AND (SELECT count(*) FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted) > $2`, pid, before) {
		select {
		case err := <-ended:
			require.ErrorContains(j.TB(), err, "another transaction has locked")
			go try()
		default:
		}
	}
	return ended
}

func TestAClaimThatWaitsIsEndedAndGivesItsLocksBack(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	s := open(t, newBackend(t, dsn, nil), "a")
	pid := postgres.PIDOf(s)
	for name, end := range map[string]func(){
		"by the bound of the wait": func() {},
		"by somebody":              func() { judge.Exec(`SELECT pg_cancel_backend($1)`, pid) },
	} {
		free := judge.stuck()
		failed := judge.claimsAndWaits(t.Context(), s, "1", "2")
		end()
		require.Error(t, <-failed, name)
		assert.Zero(t, judge.locks(), name)
		free()
		assert.Len(t, claim(t, s, "1", "2"), 2, "the session lasts")
		release(t, s, "1", "2")
		judge.Exec(`DELETE FROM pglatch_shard`)
	}
}

func TestASessionThatDoesNotAnswerAReleaseEndsItself(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	a, b := open(t, newBackend(t, dsn, nil), "a"), open(t, newBackend(t, dsn, nil), "b")
	claim(t, a, "3")
	free := judge.stuck()
	for canceled := false; !canceled; { // the bound of the wait can come first
		ctx, cancel := context.WithCancel(t.Context()) // without a deadline, by which the claim would be given up
		failed := judge.claimsAndWaits(ctx, a, "1", "2")
		cancel()
		canceled = errors.Is(<-failed, context.Canceled)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	select {
	case <-a.Lost():
		require.Fail(t, "a claim without an answer ends nothing")
	default:
	}
	require.Error(t, a.Release(ended, []string{"1", "2"}))
	await.Receive(t, patience, a.Lost(), "the loss was not reported")
	_, err := a.Renew(t.Context(), ttl)
	require.ErrorIs(t, err, leader.ErrLost)
	free()
	judge.Until(func() bool { return judge.locks() == 0 })
	assert.Len(t, claim(t, b, "1", "2", "3"), 3)
}

// The lock of a shard is that of its name in the namespace: a transaction can have it instead of a node.
func TestATransactionAndANodeExcludeEachOtherFromAShard(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	a := open(t, newBackend(t, dsn, nil), "a")
	for _, name := range []string{"acme", "7"} {
		key, err := tenants.Text(name)
		require.NoError(t, err)
		inTx := func(fn func(tx pgx.Tx)) {
			require.NoError(t, pgx.BeginFunc(t.Context(), judge.Pool, func(tx pgx.Tx) error { fn(tx); return nil }))
		}
		inTx(func(tx pgx.Tx) {
			require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{}, key))
			got := claim(t, a, name, "other")
			assert.NotContains(t, got, name)
			assert.Contains(t, got, "other", "the control")
		})
		require.Contains(t, claim(t, a, name), name, "the transaction has ended")
		inTx(func(tx pgx.Tx) {
			require.ErrorIs(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Try: true}, key), advisory.ErrHeld)
			require.ErrorIs(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Wait: time.Millisecond}, key), advisory.ErrTimeout)
		})
		release(t, a, name, "other")
		inTx(func(tx pgx.Tx) {
			require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.TxOptions{Try: true}, key), "the node has released it")
		})
	}
}

func TestARoleThatMayNotConnectIsNotToldAboutTheTables(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	newJudge(t, server.DSN("")).Exec(`CREATE ROLE app LOGIN;
		DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database()); END $$`)
	b := newBackend(t, pgtest.As(t, server.DSN(""), "app"), nil)
	_, opened := b.Open(t.Context(), member("a"), ttl)
	_, listed := b.Observe(t.Context())
	for _, err := range []error{opened, listed, b.Migrate(t.Context())} {
		var table *postgres.TableError
		require.NotErrorAs(t, err, &table)
		require.ErrorContains(t, err, "permission denied for database")
		require.ErrorIs(t, err, leader.ErrConnection)
	}
}

// stalls make every claim of shard 2 last for ever, until the function that they return is called.
var stalls = map[string]struct {
	event string // for what the server waits
	stall func(judge judge) (end func())
}{
	"statement": {"PgSleep", func(judge judge) func() {
		judge.Exec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_catalog.pg_sleep(86400); RETURN NEW; END $$`)
		judge.Exec(`CREATE TRIGGER slow BEFORE INSERT ON pglatch_shard FOR EACH ROW WHEN (NEW.name = '2') EXECUTE FUNCTION slow()`)
		return func() { judge.Exec(`DROP TRIGGER slow ON pglatch_shard`) }
	}},
	"commit": {"SyncRep", stallCommits},
}

// stallCommits has every commit wait for a standby that there is not.
func stallCommits(judge judge) func() {
	standby := func(name string) {
		judge.Exec(`ALTER SYSTEM SET synchronous_standby_names = '` + name + `'`)
		judge.Exec(`SELECT pg_reload_conf()`)
		judge.Until(func() bool { return dbtest.Ask[string](judge, `SHOW synchronous_standby_names`) == name })
	}
	standby("nobody")
	awaitStall(judge)
	return func() { standby("") }
}

// awaitStall waits until a commit waits. The checkpointer tells all sessions of the setting, a moment after the first of them shows it.
func awaitStall(judge judge) {
	ended := make(chan struct{})
	close(ended)
	const probe = `BEGIN; SET LOCAL synchronous_commit = on; SELECT pg_logical_emit_message(true, 'probe', ''); COMMIT`
	for dbtest.Ask[int](judge, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = $1`, probe) == 0 {
		select {
		case <-ended:
			ended = make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = judge.Pool.Exec(context.Background(), probe, pgx.QueryExecModeSimpleProtocol)
			}()
		default:
		}
	}
	judge.Exec(`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = '` + strings.ReplaceAll(probe, "'", "''") + `'`)
	<-ended
}

func TestAClaimThatLastsForEverCostsNothingThatTheSessionOwns(t *testing.T) {
	t.Parallel()
	for name, slow := range stalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.StartServer(t, pgserver.Options{})
			judge := newJudge(t, server.DSN(""))
			s := open(t, newBackend(t, server.DSN(""), nil), "a")
			pid := postgres.PIDOf(s)
			first := claim(t, s, "1")["1"]
			end := slow.stall(judge)
			for range 2 {
				failed := make(chan error, 1)
				try := func() { _, err := s.Claim(t.Context(), []string{"2"}); failed <- err }
				go try()
				// It waits, and has the lock meanwhile: the control.
				for !dbtest.Ask[bool](judge, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = $2)
					AND (SELECT count(*) FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND mode = 'ExclusiveLock') = 2`, pid, slow.event) {
					select {
					case err := <-failed: // on a busy machine it can end before anybody sees that it waits
						require.ErrorIs(t, err, driver.ErrSlow)
						go try()
					default:
					}
				}
				renewing, cancel := context.WithTimeout(t.Context(), ttl/3)
				lost, err := s.Renew(renewing, ttl)
				cancel()
				require.NoError(t, err)
				assert.Empty(t, lost)
				var typed *postgres.SlowError
				err = <-failed
				require.ErrorIs(t, err, driver.ErrSlow)
				require.ErrorAs(t, err, &typed)
				assert.Equal(t, pid, typed.PID)
				assert.Equal(t, 1, judge.locks(), "what it claimed is given back, and nothing else")
			}
			select {
			case <-s.Lost():
				require.Fail(t, "the session lasts")
			default:
			}
			end()
			assert.Contains(t, claim(t, s, "2"), "2")
			release(t, s, "1")
			assert.Equal(t, 1, claim(t, s, "1")["1"].Compare(first))
		})
	}
}

// A look does not wait for a table that somebody has locked, as a migration does.
func TestALookAtALockedTableCostsNothingThatTheSessionOwns(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	judge := newJudge(t, dsn)
	s := open(t, newBackend(t, dsn, nil), "a")
	claim(t, s, "1")
	tx, err := judge.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `LOCK TABLE pglatch_shard IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)
	_, err = s.Look(t.Context(), 0)
	require.ErrorContains(t, err, "another transaction has locked")
	_, err = s.Renew(t.Context(), ttl)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	v, err := s.Look(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"1": "a"}, v.Owners)
}

// The commits of a node's claims stall for longer than its lease, when it already owns shards.
func TestANodeKeepsItsShardsWhileNoClaimOfItIsAnswered(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	judge := newJudge(t, server.DSN(""))
	var mu sync.Mutex
	names, changed := []string{"1", "3"}, make(chan struct{}, 1)
	node, w := run(t, newBackend(t, server.DSN(""), nil), 0, func(c *shards.Config) {
		c.LeaseDuration = 10 * time.Second
		c.ListChanged = changed
		c.List = func(context.Context) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return names, nil
		}
	})
	has := func(owned int) func() bool {
		return func() bool { now, lost := w.counts(); return now == owned && lost == 0 }
	}
	eventually(t, has(2), "all are owned")
	end := stallCommits(judge)
	owned := 2
	for stalled := false; !stalled; { // a server process can commit a last claim before it reads the setting
		mu.Lock()
		names = append(names, strconv.Itoa(2*len(names)))
		mu.Unlock()
		changed <- struct{}{}
		looks := node.Stats().Looks
		const leases = 8 // looks, of which five are a lease
		eventually(t, func() bool { return node.Stats().Looks >= looks+leases }, "it looks")
		now, lost := w.counts()
		require.Zero(t, lost, "it has lost nothing")
		stalled, owned = now == owned, now
		require.Less(t, len(names), 6, "it gets what it claims: commits do not stall")
	}
	end()
	eventually(t, has(len(names)), "all are owned")
}
