package scheduler

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // for schema
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/services"
	"github.com/pglatch/pglatch/namespace"
)

// The kinds of things that the program locks. Never reuse a number for something else.
var (
	elections = namespace.Must(1, "election")
	schemas   = namespace.Must(2, "schema")
)

// Schedulers is the key of the election: its leader runs the schedulers.
var Schedulers = elections.ID(1)

// WorkConns is the size of a node's work pool. Leadership uses one more connection.
const WorkConns = 15

// A Config configures a Node. The zero value of every field but DSN is a good default.
type Config struct {
	// DSN is the PostgreSQL URL or keyword/value string. Required.
	DSN string

	// Node names this node in logs. "" = the host's name.
	Node string

	// Mount is the directory that all nodes share, such as an NFS mount with the repositories. Open
	// fails unless it is a mounted directory in which files can be written. "" = nothing is checked.
	Mount string

	// MountLocal allows a Mount in which nothing is mounted, for nodes that all run on one host.
	MountLocal bool

	ScheduleInterval  time.Duration // between two runs of a scheduler; 0 = 30 s
	RefreshAfter      time.Duration // how old a repository's index may be; 0 = 10 min
	Retention         time.Duration // how long finished jobs, queries and heartbeats are kept; 0 = 30 days
	JobInterval       time.Duration // how often a node without a job looks for one; 0 = 1 s
	HeartbeatInterval time.Duration // between two signs of life; 0 = 5 s. Jobs of a node that missed three are queued again

	// Logger receives the node's events. nil = discard.
	Logger *slog.Logger
}

// A Node is one process of the program. Call Close when it is no longer needed.
type Node struct {
	config   Config
	identity string
	pool     *pgxpool.Pool
	elector  *leader.Elector
	services *services.Group
}

//go:embed schema.sql
var schema string

// Open connects, creates missing tables, checks Config.Mount, and returns a Node that does nothing yet: see Serve.
// ctx bounds only this call. Any number of nodes may open at once on one database.
func Open(ctx context.Context, config Config) (*Node, error) {
	if config.DSN == "" {
		return nil, errors.New("scheduler: DSN is empty: set it to the URL of a PostgreSQL database")
	}
	config.ScheduleInterval = cmp.Or(config.ScheduleInterval, 30*time.Second)
	config.RefreshAfter = cmp.Or(config.RefreshAfter, 10*time.Minute)
	config.Retention = cmp.Or(config.Retention, 30*24*time.Hour)
	config.JobInterval = cmp.Or(config.JobInterval, time.Second)
	config.HeartbeatInterval = cmp.Or(config.HeartbeatInterval, 5*time.Second)
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	// The identity distinguishes this process from every other, also from earlier ones of the same node.
	n := &Node{config: config, identity: cmp.Or(config.Node, host) + "-" + strings.ToLower(rand.Text()[:8])}
	work, err := pgxpool.ParseConfig(config.DSN)
	if err != nil {
		return nil, fmt.Errorf("scheduler: DSN: %w", err)
	}
	work.MaxConns = WorkConns
	work.ConnConfig.RuntimeParams["application_name"] = n.identity + " work"
	if n.pool, err = pgxpool.NewWithConfig(ctx, work); err != nil {
		return nil, fmt.Errorf("scheduler: work pool: %w", err)
	}
	if err = n.createSchema(ctx); err == nil {
		err = config.checkMount(ctx) // before the node could lead
	}
	if err == nil {
		err = n.standForElection()
	}
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	return n, nil
}

// createSchema creates the program's missing tables. Two sessions that run CREATE … IF NOT EXISTS at once can fail,
// so nodes take turns.
func (n *Node) createSchema(ctx context.Context) error {
	return pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		if err := advisory.LockTx(ctx, tx, advisory.TxOptions{Wait: time.Minute}, schemas.ID(1)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
}

// Identity returns the name of this process among the nodes.
func (n *Node) Identity() string { return n.identity }

// Elector returns the node's Elector, which reports its leadership.
func (n *Node) Elector() *leader.Elector { return n.elector }

// Close closes every connection. Serve must have returned.
func (n *Node) Close() { n.pool.Close() }

// Serve starts the node and serves until ctx ends. Every node takes part in the election, answers requests on
// listener, works on jobs, sends heartbeats and reconciles. The leader also runs the schedulers. At the end Serve hands
// leadership over as soon as the schedulers have stopped. Meanwhile running requests get 10 s to end.
func (n *Node) Serve(ctx context.Context, listener net.Listener) error {
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error {
		if err := n.services.Run(ctx); err != nil {
			n.config.Logger.Error("election_ended", slog.Any("error", err))
		}
		return nil
	})
	repeat := func(name string, interval time.Duration, run func(context.Context) error) {
		log := n.config.Logger.With(slog.String("service", name))
		running.Go(func() error { every(ctx, interval, log, run); return nil })
	}
	repeat("heartbeat", n.config.HeartbeatInterval, n.beat)
	repeat("reconciliation", n.config.HeartbeatInterval, n.reconcile)
	repeat("jobs", n.config.JobInterval, n.work)

	server := &http.Server{Handler: n.Handler(), ReadHeaderTimeout: 10 * time.Second}
	running.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	running.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return server.Shutdown(grace)
	})
	return running.Wait()
}

// every calls fn at once and then at intervals, until ctx ends. It logs an error and continues with the next call.
func every(ctx context.Context, interval time.Duration, log *slog.Logger, fn func(ctx context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := fn(ctx); err != nil && ctx.Err() == nil {
			log.Warn("run_failed", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Handler returns the node's HTTP interface:
//
//	GET  /query?q=text                search, on every node
//	GET  /leader, /readyz, /livez     as documented at leader.Elector.Handler
//	GET  /healthz                     an alias of /livez
func (n *Node) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /query", n.serveQuery)
	election := n.elector.Handler()
	mux.Handle("/", election)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		alive := r.Clone(r.Context())
		alive.URL.Path = "/livez"
		election.ServeHTTP(w, alive)
	})
	return mux
}

// A Reply is the answer to a query.
type Reply struct {
	Node  string   `json:"node"`
	Repos []string `json:"repos"`
}

// serveQuery finds repositories by a part of their name.
func (n *Node) serveQuery(w http.ResponseWriter, r *http.Request) {
	reply, text, batch := Reply{Node: n.identity}, r.FormValue("q"), &pgx.Batch{}
	batch.Queue(`INSERT INTO code.queries (node, text) VALUES ($1, $2)`, n.identity, text)
	batch.Queue(`SELECT name FROM code.repos WHERE strpos(name, $1) > 0 ORDER BY name LIMIT 100`, text).Query(func(rows pgx.Rows) (err error) {
		reply.Repos, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := n.pool.SendBatch(r.Context(), batch).Close(); err != nil {
		n.config.Logger.Warn("request_failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // an error means that the client has gone
}
