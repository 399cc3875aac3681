package postgres_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// renewed renews, and returns what was found after an earlier renewal that began later than this call.
func renewed(t *testing.T, b *postgres.Backend) error {
	t.Helper()
	for range 3 { // the first can be answered before the look that follows it, and the second waits for that
		require.NoError(t, b.Renew(t.Context(), "a", ttl))
	}
	return b.Audit()
}

func TestALeaderLearnsThatItsTableIsNotFitForTheNextOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql, says string // "" = nothing is wrong
		mend      string // is as before after it; "" = not
	}{
		"nothing happened (the control)":         {"SELECT 1", "", ""},
		"the row was written by hand to no harm": {"UPDATE pglatch_election SET n = n + 1", "", ""},
		"another election's row is gone":         {"DELETE FROM pglatch_election WHERE election <> '1:100'", "", ""},
		"the row is gone":                        {"DELETE FROM pglatch_election", "is gone, and the leader counted 1.1", ""},
		"the term was set back":                  {"UPDATE pglatch_election SET n = 0", "it has term 1.0, and the leader counted 1.1", "UPDATE pglatch_election SET n = 1"},
		"the era was set back":                   {"UPDATE pglatch_election SET era = 0", "it has term 0.1", "UPDATE pglatch_election SET era = 1"},
		"the term is said to have ended":         {"UPDATE pglatch_election SET ended_at = now()", "it says that the term has ended", "UPDATE pglatch_election SET ended_at = NULL"},
		"it is said to be another session's":     {"UPDATE pglatch_election SET pid = 1", "or is another session's", ""},
		"the table is gone":                      {"DROP TABLE pglatch_election", "does not exist", ""},
		"the table has another name":             {"ALTER TABLE pglatch_election RENAME TO other", "does not exist", "ALTER TABLE other RENAME TO pglatch_election"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			b, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
			lead(t, b, "a")
			require.NoError(t, renewed(t, b))
			judge.Exec(c.sql)
			err := renewed(t, b)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, err, leader.ErrPermanent)
			if c.mend != "" {
				judge.Exec(c.mend)
				require.NoError(t, renewed(t, b))
			}
			release(t, b, "a")
			lead(t, b, "a")
			require.NoError(t, renewed(t, b), "another term, another look")
		})
	}
}

func TestALeaderLearnsThatItsRoleLostItsRights(t *testing.T) {
	t.Parallel()
	server := startServer(t, nil)
	admin := newJudge(t, server.DSN(""))
	admin.Exec("CREATE ROLE plain LOGIN; CREATE SCHEMA ops; GRANT USAGE ON SCHEMA ops TO plain")
	admin.Exec(postgres.Schema("ops.terms"))
	admin.Exec("GRANT SELECT, INSERT, UPDATE ON ops.terms TO plain")
	b := newBackend(t, pgtest.As(t, server.DSN(""), "plain"), func(c *postgres.Config) { c.CreateTable, c.Table = false, "ops.terms" })
	lead(t, b, "a")
	require.NoError(t, renewed(t, b))
	for _, right := range []string{"SELECT ON ops.terms", "INSERT ON ops.terms", "UPDATE ON ops.terms", "USAGE ON SCHEMA ops"} {
		admin.Exec("REVOKE " + right + " FROM plain")
		err := renewed(t, b)
		require.ErrorContains(t, err, "GRANT SELECT, INSERT, UPDATE", right)
		var table *postgres.TableError
		require.ErrorAs(t, err, &table)
		admin.Exec("GRANT " + right + " TO plain")
		require.NoError(t, renewed(t, b), right)
	}
}

// Who alters the table for long does not cost the leader its leadership.
func TestALeaderRenewsWhileItsTableIsLocked(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	b, judge := newBackend(t, dsn, nil), newJudge(t, dsn)
	lead(t, b, "a")
	tx := judge.Begin()
	_, err := tx.Exec(t.Context(), "LOCK TABLE pglatch_election IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	require.NoError(t, renewed(t, b))
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, renewed(t, b))
	release(t, b, "a")
}

func TestAnEraThatBeginsWhileANodeLeadsIsNothingWrong(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	b := newBackend(t, dsn, nil)
	lead(t, b, "a")
	_, err := newBackend(t, dsn, nil).NewEra(t.Context())
	require.NoError(t, err)
	require.NoError(t, renewed(t, b))
}

// The whole way: what a program with an Elector gets to know, within the lease, while it leads on.
func TestAnElectorReportsThatItsTableIsGone(t *testing.T) {
	t.Parallel()
	const lease = 15 * time.Second // so long that a busy machine does not cost the term
	dsn := pgtest.DSN(t)
	errs := make(chan error, 100)
	e, err := leader.New(leader.Config{
		Name: "x", Backend: newBackend(t, dsn, nil), LeaseDuration: lease, RenewInterval: lease / 30,
		Callbacks: leader.Callbacks{OnError: func(err error) {
			select {
			case errs <- err:
			default:
			}
		}},
	})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	defer func() { require.NoError(t, e.Shutdown(t.Context())) }()
	require.NoError(t, e.WaitForLeadership(t.Context()))
	term := e.Context()
	newJudge(t, dsn).Exec("DROP TABLE pglatch_election")
	for end, told := time.After(lease), false; !told; {
		select {
		case err := <-errs: // a late renewal is an error, too
			told = strings.Contains(err.Error(), "does not exist")
		case <-end:
			require.Fail(t, "OnError received nothing")
		}
	}
	assert.NoError(t, term.Err(), "it leads on")
}

// called starts an Elector of an election of that name on the test's key, and returns the errors that it reports.
func called(t *testing.T, dsn, name, identity string, config postgres.Config) (*leader.Elector, <-chan error) {
	t.Helper()
	errs := make(chan error, 100)
	config.DSN, config.CreateTable = dsn, true
	if !config.Key.Valid() {
		config.Key = key
	}
	b, err := postgres.New(config)
	require.NoError(t, err)
	e, err := leader.New(leader.Config{
		Name: name, Identity: identity, Backend: b, Retry: backoff.Fixed{Interval: time.Millisecond},
		Callbacks: leader.Callbacks{OnError: func(err error) {
			select {
			case errs <- err:
			default:
			}
		}},
	})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	return e, errs
}

func TestASecondElectionOfAnotherNameOnOneKeyIsToldSo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	first, firstErrs := called(t, dsn, "billing", "web-1", postgres.Config{})
	require.NoError(t, first.WaitForLeadership(t.Context()))
	second, errs := called(t, dsn, "scheduler", "cron-1", postgres.Config{})
	err := await.Receive(t, patience, errs, "OnError received nothing")
	var name *postgres.NameError
	require.ErrorAs(t, err, &name)
	require.Equal(t, &postgres.NameError{Key: "1:100", Name: "scheduler", Other: "billing", Leader: "web-1"}, name)
	require.ErrorContains(t, err, "give each a key of its own")
	require.Empty(t, firstErrs)

	// It is told, and takes part all the same: a deploy that renames an election goes on.
	require.NoError(t, first.Shutdown(t.Context()))
	require.NoError(t, second.WaitForLeadership(t.Context()))
	require.NoError(t, second.Shutdown(t.Context()))
	require.Empty(t, errs, "once is enough")
}

// Each attempt that is refused in these cases is a control of the one before.
func TestElectionsOfOneNameOrOneKeyShareItInSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second string
		change        postgres.Config
	}{
		"the same name":               {"scheduler", "scheduler", postgres.Config{}},
		"the second one is its key":   {"scheduler", "1:100", postgres.Config{}},
		"the first one is its key":    {"1:100", "scheduler", postgres.Config{}},
		"two spellings of one key":    {"1:100", "job/100", postgres.Config{Key: namespace.Must(1, "job").ID(100)}},
		"without terms":               {"billing", "scheduler", postgres.Config{NoTerms: true}},
		"a name that no table stores": {"wächter\x00", "w\xc3\xa4chter\x00", postgres.Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			first, _ := called(t, dsn, c.first, "a", postgres.Config{})
			require.NoError(t, first.WaitForLeadership(t.Context()))
			second, errs := called(t, dsn, c.second, "b", c.change)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			refused := 0
			for event := range second.Events(ctx) {
				if event.Kind == leader.EventAcquireFailed {
					if refused++; refused > 3 {
						break
					}
				}
			}
			require.Empty(t, errs)
		})
	}
}

func TestAFollowerThatTellsWhoLeadsNeedsNoConnectionMore(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a := newBackend(t, dsn, nil)
	lead(t, a, "a")
	var dials atomic.Int64
	b := newBackend(t, dsn, func(c *postgres.Config) {
		c.Connect = func(ctx context.Context, cc *pgx.ConnConfig) (*pgx.Conn, error) {
			dials.Add(1)
			return pgx.ConnectConfig(ctx, cc)
		}
	})
	e, err := leader.New(leader.Config{Name: "test", Backend: b, LeaseDuration: ttl, Retry: backoff.Fixed{Interval: 100 * time.Millisecond}})
	require.NoError(t, err)
	e.LeaderSeen()
	require.NoError(t, e.Start(t.Context()))
	defer func() { require.NoError(t, e.Shutdown(context.Background())) }()
	looks, sessions := make(map[time.Time]bool), int64(0)
	await.Until(t, patience, func() bool {
		if now := dials.Load(); now != sessions { // a busy server can cost a session; then the looks begin again
			sessions = now
			clear(looks)
		}
		holder, ok, at := e.LeaderSeen()
		if ok {
			assert.Equal(t, "a", holder.Identity)
			assert.Equal(t, a.Term(), holder.Term)
			looks[at] = true
		}
		return len(looks) > 5
	})
	_, ok, err := e.Leader(t.Context()) // the control
	require.NoError(t, err)
	require.True(t, ok)
	assert.Greater(t, dials.Load(), sessions)
}

func TestANodeWithoutASessionDoesNotKnowWhoLeads(t *testing.T) {
	t.Parallel()
	b := newBackend(t, pgtest.DSN(t), nil)
	_, _, err := b.Observe(t.Context())
	require.ErrorIs(t, err, leader.ErrConnection)
	_, err = b.Contested(t.Context())
	require.ErrorIs(t, err, leader.ErrConnection)
}

func TestAnElectionNamesItsDatabaseWithoutItsPassword(t *testing.T) {
	t.Parallel()
	b, err := postgres.New(postgres.Config{DSN: "postgres://me:secret@db-1:6000,db-2:6001/shop", Key: namespace.Pair(1, 100)})
	require.NoError(t, err)
	e, err := leader.New(leader.Config{Name: "scheduler", Backend: b})
	require.NoError(t, err)
	require.Equal(t, "db-1:6000/shop", e.Database())

	e, err = leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	require.NoError(t, err)
	require.Empty(t, e.Database(), "control: a backend that is in no database")
}
