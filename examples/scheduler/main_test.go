package scheduler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/scheduler"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// childDSN turns this program into a node in a separate process.
const childDSN = "PGLATCH_SCHEDULER_CHILD_DSN"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(childDSN); dsn != "" {
		serveChild(dsn)
		return
	}
	pgtest.Main(m)
}

// serveChild runs a node until its standard input ends or it is killed.
func serveChild(dsn string) {
	ctx, stop := context.WithCancel(context.Background())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	config := quick(dsn, "child")
	config.Logger = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	node, err := scheduler.Open(ctx, config)
	if err != nil {
		panic(err)
	}
	defer node.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	if err := node.Serve(ctx, listener); err != nil {
		panic(err)
	}
}

// patience limits waits for quick events on a slow and busy machine.
const patience = 30 * time.Second

// quick returns a config with shorter times than in production.
func quick(dsn, name string) scheduler.Config {
	return scheduler.Config{
		DSN: dsn, Node: name, ScheduleInterval: 20 * time.Millisecond,
		JobInterval: 10 * time.Millisecond, HeartbeatInterval: 100 * time.Millisecond,
	}
}

// A diary collects the messages that a node logs.
type diary struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(p)
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

// count returns the number of lines that contain all the texts.
func (d *diary) count(texts ...string) (lines int) {
	for line := range strings.Lines(d.String()) {
		has := true
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			lines++
		}
	}
	return lines
}

// A node is a scheduler.Node that serves in this process.
type node struct {
	*scheduler.Node
	t    *testing.T
	url  string
	log  *diary
	stop func()
}

// serve opens a node and lets it serve until stop, or the end of the test.
func serve(t *testing.T, config scheduler.Config) *node {
	t.Helper()
	n := &node{t: t, log: &diary{}}
	config.Logger = slog.New(slog.NewTextHandler(n.log, nil))
	var err error
	n.Node, err = scheduler.Open(t.Context(), config)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n.url = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(t, n.Serve(ctx, listener))
		n.Close()
	}()
	n.stop = func() { cancel(); <-done }
	t.Cleanup(n.stop)
	return n
}

// get sends a request to a node, and returns the status and the body.
func (n *node) get(path string) (int, string) {
	n.t.Helper()
	request, err := http.NewRequestWithContext(n.t.Context(), http.MethodGet, n.url+path, http.NoBody)
	require.NoError(n.t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(n.t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(n.t, err)
	return response.StatusCode, string(body)
}

// query sends a query that must succeed.
func (n *node) query(text string) (reply scheduler.Reply) {
	n.t.Helper()
	code, body := n.get("/query?q=" + text)
	require.Equal(n.t, http.StatusOK, code, body)
	require.NoError(n.t, json.Unmarshal([]byte(body), &reply))
	return reply
}

// A database is the test's view of the nodes' database.
type database struct {
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{t: t, dsn: pgtest.DSN(t)}
	var err error
	d.pool, err = pgxpool.New(t.Context(), d.dsn)
	require.NoError(t, err)
	t.Cleanup(d.pool.Close)
	return d
}

// ask returns the rows of one column.
func ask[T any](d *database, sql string, args ...any) []T {
	d.t.Helper()
	rows, _ := d.pool.Query(d.t.Context(), sql, args...)
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(d.t, err)
	return all
}

func (d *database) exec(sql string, args ...any) {
	d.t.Helper()
	_, err := d.pool.Exec(d.t.Context(), sql, args...)
	require.NoError(d.t, err)
}

// holder returns the session that holds the election lock, as "pid backend_start", or ""
// if there is none.
func (d *database) holder() string {
	d.t.Helper()
	number, id, _ := scheduler.Schedulers.Tag().Pair()
	holders := ask[string](d, `SELECT format('%s %s', pid, backend_start) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid = $1 AND objid = $2 AND objsubid = 2 AND granted`, number, id)
	require.LessOrEqual(d.t, len(holders), 1)
	return strings.Join(holders, "")
}

func eventually(t *testing.T, is func() bool, what string, args ...any) {
	t.Helper()
	require.Eventually(t, is, patience, 5*time.Millisecond, fmt.Sprintf(what, args...))
}

// leaderOf waits for a leader and returns it and the other nodes.
func leaderOf(t *testing.T, nodes ...*node) (leads *node, others []*node) {
	t.Helper()
	eventually(t, func() bool {
		leads, others = nil, nil
		for _, n := range nodes {
			if n.Elector().IsLeader() {
				leads = n
			} else {
				others = append(others, n)
			}
		}
		return leads != nil
	}, "nobody leads")
	return leads, others
}
