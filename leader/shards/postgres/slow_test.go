package postgres_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

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
