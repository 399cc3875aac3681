// Package system gives each compared system the same two operations, take a lock and release
// it, with one source file for the peers on each server.
package system

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/histogram"
)

// A Server is a server program that a system needs.
type Server string

// The servers.
const (
	Postgres     Server = "PostgreSQL"
	Redis        Server = "Redis"
	Etcd         Server = "etcd"
	EtcdNoFsync  Server = "etcd without fsync"
	PGBenchTools Server = "pgbench" // part of PostgreSQL
)

// A System is one way to take locks.
type System struct {
	Name  string
	Title string // for tables
	Needs Server
	Ours  bool // pglatch: its guards are asserted

	// PerLock: each held lock needs its own connection.
	PerLock bool
	// LoadOnly: it runs only loads on random keys and on one key.
	LoadOnly bool
	// MaxStock is the largest number of locks that it is asked to hold at once; 0 = 100,000.
	MaxStock int
	// Stock is the reason why it cannot hold many locks, or "".
	Stock string

	Open func(context.Context, Env) (Client, error)
}

// An Env has the addresses of the servers and the parameters of a client.
type Env struct {
	Addresses map[Server]string // DSN, host:port, or the path of pgbench
	PIDs      map[Server]int    // of servers that do not report it themselves
	Tag       string            // identifies the connections of this client
	Workers   int               // workers that call Cycle
	Conns     int               // size of a pool
	Locks     int               // the largest number held at once
	Idle      time.Duration     // approximate time between two turns
	Sentinel  bool              // pglatch: hold one lock all the time, so that there is a session to watch and ping
}

// A Client takes locks. Its methods return when ctx ends.
type Client interface {
	// Cycle takes the lock on key, calls held, and releases the lock. A worker,
	// numbered from 0, makes one call at a time.
	Cycle(ctx context.Context, worker int, key uint32, held func()) error
	// Footprint returns the client's current cost.
	Footprint(ctx context.Context) (Footprint, error)
	// Close releases everything.
	Close() error
}

// A Footprint counts a client's connections and the memory of the server's processes for them.
type Footprint struct {
	Connections int
	PIDs        []int
}

// A Held is a lock that has not been released.
type Held interface{ Release() error }

// A Holder takes locks and keeps them.
type Holder interface {
	// Take takes the lock on key and holds it until its release or Close.
	Take(ctx context.Context, key uint32) (Held, error)
}

// A Guarded client watches its locks and can prove it.
type Guarded interface {
	// Guards blocks until the counters of the guards have risen since Open: watched
	// sessions, answered pings, compared backend pids. It fails if a lock was lost.
	Guards(ctx context.Context) error
	// Lose takes n locks, ends their sessions at the server, and returns for each
	// lock the time until its holder knew of the loss.
	Lose(ctx context.Context, n int) (*histogram.Histogram, error)
}

// A Runner brings its own workers.
type Runner interface {
	// Run makes workers cycle on random keys, or on one hot key.
	Run(ctx context.Context, workers int, hot bool, d time.Duration) (opsPerSecond float64, latencies *histogram.Histogram, err error)
}

// errLoadOnly means that Cycle was called on a client that brings its own workers.
var errLoadOnly = errors.New("this system runs whole loads only")

// keySpace is the first key of PostgreSQL's locks with two integers.
const keySpace = 1

// leaseTime is the TTL for systems with leases. No lock is held for longer here.
const leaseTime = time.Minute

// The names of systems that the goals refer to.
const (
	HandWritten  = "handwritten"
	RedisLock    = "redislock"
	PGBench      = "pgbench"
	Dedicated    = "pglatch"
	Multiplexed1 = "pglatch-mux1"
	Multiplexed2 = "pglatch-mux2"
	Ceiling      = "ceiling"
)

// All returns the systems, in the order of the tables.
func All() []System {
	return append([]System{
		{Name: HandWritten, Title: "by hand: pgxpool, `pg_advisory_lock`", Needs: Postgres, PerLock: true, Open: openHandWritten},
		{Name: "database-sql", Title: "by hand: database/sql, one connection", Needs: Postgres, Stock: "one connection holds one lock", Open: openDatabaseSQL},
		{Name: "pglock", Title: "cirello.io/pglock", Needs: Postgres, Open: openPglock},
		{Name: RedisLock, Title: "bsm/redislock", Needs: Redis, Open: openRedislock},
		{Name: "redsync", Title: "go-redsync/redsync", Needs: Redis, Open: openRedsync},
		{Name: "etcd", Title: "etcd concurrency", Needs: Etcd, Open: etcdOpener(Etcd)},
		{Name: "etcd-nofsync", Title: "etcd concurrency, no fsync", Needs: EtcdNoFsync, Open: etcdOpener(EtcdNoFsync)},
		{Name: PGBench, Title: "pgbench, the same statements", Needs: PGBenchTools, LoadOnly: true, Stock: "it runs loads only", Open: openPGBench},
		{Name: Ceiling, Title: "the ceiling: batches without any guard", Needs: Postgres, LoadOnly: true, Stock: "it runs loads only", Open: openCeiling},
	}, pglatches()...)
}

// Find returns the system of a name.
func Find(name string) (System, error) {
	all := All()
	i := slices.IndexFunc(all, func(s System) bool { return s.Name == name })
	if i < 0 {
		return System{}, fmt.Errorf("there is no system %q", name)
	}
	return all[i], nil
}
