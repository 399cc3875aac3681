//go:build integration

package turns

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/tally"
)

var stageNodes = []string{"a", "b", "c"}

// A stage is a server of its own and processes that serve a mailbox, each behind a network of its own.
type stage struct {
	*bench
	server    *pgserver.Server
	networks  map[string]*faultproxy.Proxy
	processes map[string]*proctest.Process
	workers   int
}

// newStage starts them. Each process has a worker for each entity, so that a worker is always free.
func newStage(t *testing.T, workers int) *stage {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"synchronous_commit": "on"}})
	s := &stage{newBench(t, dbtest.Open(t, server.DSN(""))), server, map[string]*faultproxy.Proxy{}, map[string]*proctest.Process{}, workers}
	s.Exec(watched)
	s.Exec(`CREATE TABLE faults (at timestamptz DEFAULT clock_timestamp(), what text, who text)`)
	for _, name := range stageNodes {
		network, err := faultproxy.New(t.Context(), fmt.Sprintf("%s:%d", server.Host(), server.Port()))
		require.NoError(t, err)
		t.Cleanup(network.Close)
		s.networks[name] = network
		s.start(t, name)
	}
	return s
}

func (s *stage) start(t *testing.T, name string) {
	t.Helper()
	dsn, err := s.networks[name].URL(s.server.DSN(""))
	require.NoError(t, err)
	s.processes[name] = proctest.Start(t, proctest.As(t, serving, node{dsn, name, s.workers, ttl}))
}

// silent waits until the server has ended the sessions of a node's Locker, and so freed its locks.
func (s *stage) silent(t *testing.T, name string) {
	t.Helper()
	await.Until(t, await.Patience, func() bool { return s.sessions(name) == 0 }, "the server gives up the node")
}

// A fault strikes one process, or all.
type fault struct {
	name string
	all  bool
	do   func(t *testing.T, s *stage, name string, struck func()) // calls struck when it has happened, before it ends
}

var faults = []fault{
	{"killed process", false, func(t *testing.T, s *stage, name string, struck func()) {
		t.Helper()
		s.processes[name].Kill()
		struck()
		s.start(t, name)
	}},
	{"stopped process", false, func(t *testing.T, s *stage, name string, struck func()) {
		t.Helper()
		s.processes[name].Signal(syscall.SIGSTOP)
		struck()
		s.silent(t, name)
		s.processes[name].Signal(syscall.SIGCONT)
	}},
	{"ended session", false, func(t *testing.T, s *stage, name string, struck func()) {
		t.Helper()
		s.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, name)
		struck()
	}},
	{"silent network", false, func(t *testing.T, s *stage, name string, struck func()) {
		t.Helper()
		s.networks[name].Set(faultproxy.Hold)
		struck()
		s.silent(t, name)
		s.networks[name].Set(faultproxy.Pass)
	}},
	{"crashed server", true, func(t *testing.T, s *stage, _ string, struck func()) {
		t.Helper()
		require.NoError(t, s.server.Restart(t.Context(), pgserver.Immediate))
		s.Pool.Reset()
		s.pool.Reset()
		struck()
	}},
	{"rolling deploy", true, func(t *testing.T, s *stage, _ string, struck func()) {
		t.Helper()
		for _, name := range stageNodes {
			s.processes[name].Stop()
			require.Zero(t, s.processes[name].Wait())
			s.start(t, name)
		}
		struck()
	}},
}

// strike has a fault happen, and waits until all nodes serve again.
func (s *stage) strike(t *testing.T, f fault, name string) {
	t.Helper()
	names := []string{name}
	if f.all {
		names = stageNodes
	}
	s.Exec(`INSERT INTO faults (what, who) SELECT 'strikes', unnest($1::text[])`, names)
	f.do(t, s, name, func() { s.Exec(`INSERT INTO faults (what, who) SELECT 'struck', unnest($1::text[])`, names) })
	for _, name := range names {
		await.Until(t, await.Patience, func() bool {
			return dbtest.Ask[bool](s.Database, `SELECT EXISTS (SELECT FROM noted WHERE what = 'joined' AND who LIKE $1 || '/%'
				AND at > (SELECT max(at) FROM faults WHERE what = 'strikes' AND who = $1))`, name)
		}, func() string { return name + " serves again after: " + f.name })
	}
	tally.Faults(t, tally.Fault{Name: f.name, Times: 1})
}
