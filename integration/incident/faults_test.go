//go:build integration

package incident

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once"
	oncepg "github.com/pglatch/pglatch/once/postgres"
	"github.com/pglatch/pglatch/turns"
)

// A site is the databases of the drill, with programs that run in the test's own process.
type site struct {
	t      *testing.T
	ctx    context.Context
	dsn    string
	pooler string // the way to the same database through a pooler that shares sessions
	pool   *pgxpool.Pool
	work   *sync.WaitGroup
}

// locker is a program with a Locker.
func (s *site) locker(name string, answer introspect.Config) *advisory.Locker {
	s.t.Helper()
	answer.Service = name
	l, err := advisory.Open(s.t.Context(), advisory.Config{
		DSN: s.dsn, Wait: advisory.NoTimeout, SessionTTL: time.Minute, ApplicationName: name, Answer: answer, LocksPerConn: 4,
	})
	require.NoError(s.t, err)
	s.t.Cleanup(l.Close)
	return l
}

// acquire takes an order.
func (s *site) acquire(l *advisory.Locker, key namespace.Key) *advisory.Lock {
	s.t.Helper()
	lock, err := l.Acquire(s.ctx, key)
	require.NoError(s.t, err)
	return lock
}

// want waits for a key until the end of the context.
func (s *site) want(ctx context.Context, l *advisory.Locker, key namespace.Key) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	s.work.Go(func() {
		if lock, err := l.Acquire(ctx, key); err == nil {
			_ = lock.Release()
		}
	})
	return cancel
}

// session is a session of a program without pglatch.
func (s *site) session(dsn, name string, statements ...string) *pgx.Conn {
	s.t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(s.t, err)
	cc.RuntimeParams["application_name"] = name
	cc.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(s.t.Context(), cc)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(s.t.Context())) })
	for _, sql := range statements {
		_, err = conn.Exec(s.t.Context(), sql)
		require.NoError(s.t, err, sql)
	}
	return conn
}

// candidate takes part in an election.
func (s *site) candidate(name, identity string, key namespace.Key, changes ...func(*postgres.Config)) (stop func()) {
	s.t.Helper()
	config := postgres.Config{DSN: s.dsn, Key: key, CreateTable: true, Answer: introspect.Config{Service: identity}}
	for _, change := range changes {
		change(&config)
	}
	backend, err := postgres.New(config)
	require.NoError(s.t, err)
	e, err := leader.New(leader.Config{Name: name, Identity: identity, Backend: backend, LeaseDuration: time.Minute, KeepTrying: true})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.ctx)
	s.work.Go(func() {
		err := e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
		assert.True(s.t, err == nil || ctx.Err() != nil, err)
	})
	return cancel
}

// mailbox sends a message to an entity of a mailbox, which a handler serves, if there is one.
func (s *site) mailbox(name string, n int, change func(*turns.Config), handler turns.Handler) (stop func()) {
	s.t.Helper()
	config := turns.Config{Pool: s.pool, Name: name, Namespace: namespace.Must(n, name), Node: name + "-node"}
	change(&config)
	if handler != nil {
		config.Locker = s.locker(name, introspect.Config{})
	}
	m, err := turns.Open(s.ctx, config)
	require.NoError(s.t, err)
	require.NoError(s.t, m.Migrate(s.ctx))
	require.NoError(s.t, pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error {
		_, err := m.Send(s.ctx, tx, config.Namespace.ID(1), turns.Message{Body: []byte("hello")})
		return err
	}))
	ctx, cancel := context.WithCancel(s.ctx)
	if handler != nil {
		s.work.Go(func() { _ = m.Serve(ctx, handler) })
	}
	return cancel
}

// loseStandby takes away the synchronous standby that a program waits for.
func (s *site) loseStandby(dsn string) (end func()) {
	s.t.Helper()
	dba, shop := s.session(dsn, "dba"), s.session(dsn, "shop", "SET synchronous_commit = on", "CREATE TABLE sales (n int)")
	set := func(sql string) {
		for _, sql := range []string{sql, "SELECT pg_reload_conf()"} {
			_, err := dba.Exec(s.t.Context(), sql)
			require.NoError(s.t, err)
		}
	}
	set("ALTER SYSTEM SET synchronous_standby_names = 'missing'")
	ctx, cancel := context.WithCancel(s.ctx)
	s.work.Go(func() {
		for pause.For(ctx, 10*time.Millisecond) == nil { // until the checkpointer knows the setting, commits go on
			_, _ = shop.Exec(ctx, "INSERT INTO sales VALUES (1)")
		}
	})
	return func() { set("ALTER SYSTEM RESET synchronous_standby_names"); cancel() }
}

// as is the DSN of another role.
func as(t *testing.T, dsn, role string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.User = url.User(role)
	return u.String()
}

// answering waits until the processes answer.
func (s *site) answering(names ...string) {
	s.t.Helper()
	conn := s.session(s.dsn, "answering")
	heard := make(map[string]bool)
	await.Until(s.t, patience, func() bool {
		answers, err := introspect.Ask(s.t.Context(), conn, introspect.Question{})
		require.NoError(s.t, err)
		for _, a := range answers.Answers {
			heard[a.Process.Service] = true
		}
		return !slices.ContainsFunc(names, func(name string) bool { return !heard[name] })
	}, func() string { return fmt.Sprint(names, " answer: ", heard) })
}

func TestEveryToolNamesEachFault(t *testing.T) {
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_connections": "200", "max_prepared_transactions": "5"}})
	small := pgtest.StartServer(t, pgserver.Options{OwnSystem: true, Settings: map[string]string{
		"max_connections": "20", "max_locks_per_transaction": "20", "max_prepared_transactions": "0",
	}})
	dsn := server.DSN("postgres")
	clock := service.NewClock(t)
	skewed := pgtest.StartServer(t, pgserver.Options{Env: clock.Env}).DSN("postgres")
	ctx, cancel := context.WithCancel(t.Context())
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := &site{t: t, ctx: ctx, dsn: dsn, pooler: service.PgBouncer(t, server, "pool_mode=transaction", "application_name_add_host=0"), pool: pool, work: new(sync.WaitGroup)}
	defer func() { cancel(); s.work.Wait() }()

	old, err := server.CreateDatabase(t.Context())
	require.NoError(t, err)
	s.session(dsn, "old", "CREATE ROLE looker LOGIN")
	leases, gone := clitest.ServeConfig(t, leaseserver.Config{Store: leasetest.NewStore()}), clitest.ServeConfig(t, leaseserver.Config{Store: leasetest.NewStore()})
	c := openConsole(t, map[string]string{"fleet": dsn, "small": small.DSN("postgres"), "clock": skewed, "old": as(t, old, "looker")}, "--server", "leases="+leases.URL, "--server", "gone="+gone.URL)
	d := desk{t: t, dsn: dsn, run: replay.Start(t, "incident")}
	stopped, hung := d.start("stopped", dsn), d.start("hung", dsn)
	ours := s.locker("ours", introspect.Config{})
	off := s.locker("switched-off", introspect.Config{Off: true})
	stopped.tell("hold 298") // processes answer from their first lock on
	hung.tell("hold 299")
	s.answering("stopped", "hung")
	d.start("clerk", skewed).tell("hold 1")
	beside := *s
	beside.dsn = skewed
	beside.answering("clerk")
	waiters := soak.Size(t, 200, 2000)
	hold := func(l *advisory.Locker, id string) *advisory.Lock { return s.acquire(l, order(id)) }
	taken := func(who *pgx.Conn, id string, waits bool) func() {
		stop := func() {}
		if waits {
			stop = s.want(ctx, ours, order(id))
		}
		return func() { assert.NoError(t, who.Close(ctx)); stop() }
	}

	c.drill(
		&fault{name: "SIGSTOP right after a lock was granted", verdict: "holder-silent", words: []string{"order/201", "stopped"}, begin: func() func() {
			stopped.tell("hold 201")
			stopped.Signal(syscall.SIGSTOP)
			return func() { stopped.Signal(syscall.SIGCONT) }
		}},
		&fault{name: "a node of shards hangs", verdict: "holder-silent", words: []string{"hung"}, begin: func() func() {
			hung.tell("own")
			hung.Signal(syscall.SIGSTOP)
			return func() { hung.Signal(syscall.SIGCONT) }
		}},
		&fault{name: "psql holds, behind a pooler", verdict: "foreign-holder", cause: "holder-idle-in-transaction", words: []string{"order/202", "psql"}, begin: func() func() {
			psql := s.session(s.pooler, "psql", "BEGIN", "SELECT pg_advisory_xact_lock(1, 202)")
			return taken(psql, "202", true)
		}},
		&fault{name: "a program with its answers off holds", verdict: "foreign-holder", words: []string{"order/203", "switched-off"}, begin: func() func() {
			lock, stop := hold(off, "203"), s.want(ctx, ours, order("203"))
			return func() { assert.NoError(t, lock.Release()); stop() }
		}},
		&fault{name: "a semaphore is full", verdict: "held-long", words: []string{"order/204", "ours"}, begin: func() func() {
			var slots []*advisory.Lock
			for range 2 {
				slot, err := ours.AcquireSlot(ctx, order("204"), 2)
				require.NoError(t, err)
				slots = append(slots, slot)
			}
			ctx, stop := context.WithCancel(ctx)
			s.work.Go(func() { _, _ = ours.AcquireSlot(ctx, order("204"), 2) })
			return func() {
				stop()
				for _, slot := range slots {
					assert.NoError(t, slot.Release())
				}
			}
		}},
		&fault{name: "thousands wait for one key", verdict: "held-long", words: []string{"order/205", fmt.Sprint(waiters, " wait")}, begin: func() func() {
			lock := hold(ours, "205")
			ctx, stop := context.WithCancel(ctx)
			for range waiters {
				s.want(ctx, ours, order("205"))
			}
			return func() { stop(); assert.NoError(t, lock.Release()) }
		}},
		&fault{name: "a deadlock of a program and psql", verdict: "deadlock", words: []string{"order/206", "order/207", "psql-3"}, begin: func() func() {
			psql, lock := s.session(dsn, "psql-3", "SELECT pg_advisory_lock(1, 206)"), hold(ours, "207")
			ctx, end := context.WithCancel(ctx)
			s.work.Go(func() { _, _ = psql.Exec(ctx, "SELECT pg_advisory_lock(1, 207)") }) // the end of ctx ends the session
			stop := s.want(lock.Context(), ours, order("206"))
			return func() { end(); stop(); assert.NoError(t, lock.Release()) }
		}},
		&fault{name: "a holder is idle in a transaction", verdict: "holder-idle-in-transaction", words: []string{"order/208", "importer"}, begin: func() func() {
			return taken(s.session(dsn, "importer", "BEGIN", "SELECT pg_advisory_xact_lock(1, 208)"), "208", false)
		}},
		&fault{name: "a prepared transaction holds", verdict: "prepared-transaction", words: []string{"order/209"}, begin: func() func() {
			s.session(dsn, "two-phase", "BEGIN", "SELECT pg_advisory_xact_lock(1, 209)", "PREPARE TRANSACTION 'drill'")
			return func() { s.session(dsn, "two-phase", "ROLLBACK PREPARED 'drill'") }
		}},
		&fault{name: "two elections have one key", verdict: "election-clash", words: []string{"job/5", "nightly", "hourly"}, begin: func() func() {
			a, b := s.candidate("nightly", "node-a", jobs.ID(5)), s.candidate("hourly", "node-b", jobs.ID(5))
			return func() { a(); b() }
		}},
		&fault{name: "psql has the key of an election", verdict: "no-leader", words: []string{"weekly", "psql-2"}, begin: func() func() {
			psql := s.session(dsn, "psql-2", "SELECT pg_advisory_lock(2, 6)")
			stop := s.candidate("weekly", "node-c", jobs.ID(6))
			return func() { stop(); assert.NoError(t, psql.Close(ctx)) }
		}},
		&fault{name: "an application runs in two versions, with two names of a namespace", verdict: "namespace-clash", words: []string{"invoice", "bill"}, begin: func() func() {
			old := s.acquire(s.locker("v1", introspect.Config{}), namespace.Must(9, "bill").ID(1))
			newer := s.acquire(s.locker("v2", introspect.Config{}), namespace.Must(9, "invoice").ID(2))
			return func() { assert.NoError(t, errors.Join(old.Release(), newer.Release())) }
		}},
		&fault{name: "a turn does not end", verdict: "turn-stuck", words: []string{"slow/1", "slow-node"}, begin: func() func() {
			return s.mailbox("slow", 11, func(c *turns.Config) { c.Finish = -1 }, func(ctx context.Context, _ *turns.Turn) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}},
		&fault{name: "nobody serves a mailbox", verdict: "backlog-growing", words: []string{"unserved"}, begin: func() func() {
			s.mailbox("unserved", 12, func(*turns.Config) {}, nil)
			return nil
		}},
		&fault{name: "a poison message stops its entity", verdict: "poison-message", words: []string{"bad/1", "cannot parse"}, begin: func() func() {
			s.mailbox("bad", 13, func(c *turns.Config) { c.MaxAttempts, c.OnDead = 1, turns.Stop }, func(context.Context, *turns.Turn) error {
				return errors.New("cannot parse")
			})
			return nil
		}},
		&fault{
			name: "a tick was missed", words: []string{"nightly-report", "1, the last"}, metric: `pglatch_ticks_missed{job_name="nightly-report",database="fleet"} 1`, in: "fleet",
			command: []string{"ls", "--dsn", dsn}, says: []string{"nightly-report", "1, the last"}, begin: func() func() {
				store, err := oncepg.New(oncepg.Config{Pool: pool, CreateTable: true})
				require.NoError(t, err)
				r, err := once.New(once.Config{Store: store, Window: 24 * time.Hour})
				require.NoError(t, err)
				hour := time.Now().Truncate(time.Hour)
				for _, ago := range []int{6, 5, 4, 3, 1, 0} {
					_, err := r.Do(ctx, "nightly-report", hour.Add(-time.Duration(ago)*time.Hour), func(context.Context) error { return nil })
					require.NoError(t, err)
				}
				return nil
			},
		},
		&fault{name: "one program fills the lock table", in: "small", verdict: "lock-table", words: []string{"filler"}, begin: func() func() {
			filler := s.session(small.DSN("postgres"), "filler", "SELECT pg_advisory_lock(3, n) FROM generate_series(1, 330) n")
			return func() { assert.NoError(t, filler.Close(ctx)) }
		}},
		&fault{name: "the connections of a server are used up", in: "small", verdict: "connections", words: []string{"connections"}, begin: func() func() {
			var all []*pgx.Conn
			for range 12 {
				all = append(all, s.session(small.DSN("postgres"), "pool"))
			}
			return func() {
				for _, conn := range all {
					assert.NoError(t, conn.Close(ctx))
				}
			}
		}},
		&fault{name: "a synchronous standby is missing", in: "small", verdict: "commits-wait", words: []string{"shop", "missing"}, begin: func() func() {
			return s.loseStandby(small.DSN("postgres"))
		}},
		&fault{name: "the clock of a server is 7 s off", in: "clock", verdict: "clocks", words: []string{" s behind PostgreSQL's host"}, begin: func() func() {
			clock.Set(t, 7*time.Second)
			return func() { clock.Set(t, 0) }
		}},
		&fault{name: "the table of an election is too old", verdict: "no-leader", words: []string{"archive", "node-old", "written"}, begin: func() func() {
			s.session(dsn, "old", postgres.Schema("old_election"), "ALTER TABLE old_election DROP COLUMN written")
			return s.candidate("archive", "node-old", jobs.ID(7), func(c *postgres.Config) { c.Table, c.CreateTable = "old_election", false })
		}},
		&fault{name: "a role lacks the rights to its table", verdict: "no-leader", words: []string{"export", "node-weak", "permission denied"}, begin: func() func() {
			s.session(dsn, "weak", postgres.Schema("weak_election"), "CREATE ROLE weak LOGIN")
			weak := *s
			weak.dsn = as(t, dsn, "weak")
			lock := weak.acquire(weak.locker("weak", introspect.Config{}), order("210")) // a process without any session cannot answer
			stop := weak.candidate("export", "node-weak", jobs.ID(8), func(c *postgres.Config) { c.Table, c.CreateTable = "weak_election", false })
			return func() { stop(); assert.NoError(t, lock.Release()) }
		}},
		&fault{
			name: "the monitor's role lacks the rights", in: "old", words: []string{"may not read the tables of ticks"}, command: []string{"ls", "-v", "--dsn", as(t, old, "looker")}, says: []string{"may not read the tables of ticks"}, begin: func() func() {
				s.session(old, "old", oncepg.Schema(""))
				return nil
			},
		},
		&fault{
			name: "the tables are too old", in: "old", words: []string{"the tables of leases cannot be read"}, command: []string{"ls", "-v", "--dsn", as(t, old, "looker")}, says: []string{"the tables of leases cannot be read"}, begin: func() func() {
				s.session(old, "old", leasepg.Schema(), "UPDATE pglatch_lease.store SET schema_version = 0", "ALTER TABLE pglatch_lease.locks DROP COLUMN holder CASCADE",
					"GRANT USAGE ON SCHEMA pglatch_lease TO looker", "GRANT SELECT ON ALL TABLES IN SCHEMA pglatch_lease TO looker")
				return nil
			},
		},
		&fault{
			name: "a lock server is down", words: []string{"gone", "does not answer"}, metric: `pglatch_lock_server_up{server="gone"} 0`,
			command: []string{"lease", "list", "--server", gone.URL}, says: []string{"no lock server answers"}, begin: func() func() {
				gone.Close()
				return nil
			},
		},
		&fault{
			name: "a holder stopped renewing its lease", words: []string{"rollup", `data-label="Expired">1<`}, metric: `pglatch_lock_server_leases{server="leases",state="expired"} 1`,
			command: []string{"lease", "list", "--server", leases.URL}, says: []string{"rollup", "EXPIRED", "worker-9"}, begin: func() func() {
				_, err := servetest.Client(t, leases, leasehttp.ClientConfig{}).Acquire(ctx, lease.AcquireRequest{Name: "rollup", Holder: "worker-9", TTL: lease.MinTTL})
				require.NoError(t, err)
				return nil
			},
		},
	)
}
