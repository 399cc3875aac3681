// Package system makes the same two acts, take a lock and give it back, out of each
// of the compared systems: one file for each.
package system

import (
	"context"
	"errors"
	"time"

	"github.com/pglatch/pglatch/bench/internal/gauge"
)

// A Server is what a system needs to run.
type Server string

// The servers.
const (
	Postgres     Server = "PostgreSQL"
	Redis        Server = "Redis"
	Etcd         Server = "etcd"
	EtcdNoFsync  Server = "etcd without fsync"
	PGBenchTools Server = "pgbench" // with PostgreSQL
)

// A System is one way to take locks.
type System struct {
	Name  string
	Title string // for tables
	Needs Server
	Ours  bool // pglatch: its guards are asserted

	// PerLock: each held lock needs a connection of its own.
	PerLock bool
	// LoadOnly: it runs loads on random keys and on one key, and nothing else.
	LoadOnly bool
	// MaxStock is how many locks it may be asked to hold at one time; 0 = 100,000.
	MaxStock int
	// Stock is why it cannot hold many locks, "" if it can.
	Stock string

	Open func(context.Context, Env) (Client, error)
}

// An Env says where the servers are and what a client is to do.
type Env struct {
	Addresses map[Server]string // DSN, host:port, or the path of pgbench
	PIDs      map[Server]int    // of servers that cannot be asked for it
	Tag       string            // names the client's connections, one client only
	Workers   int               // that call Cycle
	Conns     int               // size of a pool
	Locks     int               // to be held at once, at most
	Idle      time.Duration     // about the time between two turns
	Sentinel  bool              // pglatch: hold a lock all the time, so that something is watched and pinged
}

// A Client takes locks. Its methods return when ctx ends.
type Client interface {
	// Cycle takes the lock on key, calls held, and releases the lock. A worker,
	// numbered from 0, makes one call at a time.
	Cycle(ctx context.Context, worker int, key uint32, held func()) error
	// Footprint tells what the client costs now.
	Footprint(ctx context.Context) (Footprint, error)
	// Close releases everything.
	Close() error
}

// A Footprint is the connections of a client, and the server's processes for them.
type Footprint struct {
	Connections int
	PIDs        []int
}

// A Held is a lock until its release.
type Held interface{ Release() error }

// A Holder takes locks that stay.
type Holder interface {
	// Take takes the lock on key, and holds it until the release or Close.
	Take(ctx context.Context, key uint32) (Held, error)
}

// A Guarded client watches its locks, and proves it.
type Guarded interface {
	// Guards blocks until the counters of the guards have risen since Open: watched
	// sessions, answered pings, compared backend pids. It fails if a lock was lost.
	Guards(ctx context.Context) error
	// Lose takes n locks, ends their sessions at the server, and returns for each
	// lock the time until its holder knew.
	Lose(ctx context.Context, n int) (*gauge.Histogram, error)
}

// A Runner brings workers of its own.
type Runner interface {
	// Run lets workers cycle on random keys, or on one hot key.
	Run(ctx context.Context, workers int, hot bool, d time.Duration) (opsPerSecond float64, latencies *gauge.Histogram, err error)
}

// errLoadOnly: a client that brings workers of its own was asked for a cycle.
var errLoadOnly = errors.New("this system runs whole loads only")

// keySpace is the first key of the two-integer form of the locks in PostgreSQL.
const keySpace = 1

// leaseTime is the time to live that systems with leases get. Nothing here holds a
// lock for longer.
const leaseTime = time.Minute
