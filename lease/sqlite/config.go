package sqlite

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/lease"
)

// The defaults of a Config.
const (
	DefaultBusyTimeout = time.Second
	DefaultCacheBytes  = 32 << 20
)

// Durability says which failures an answered change survives.
type Durability uint8

// The durabilities.
const (
	// Durable: answered changes survive a crash of the machine and a power failure. Each
	// transaction is synced to the disk before any of its requests is answered.
	Durable Durability = iota
	// Relaxed: answered changes survive a crash of the process, including kill -9. A crash of the
	// machine can undo the last transactions, so leases are lost, and their tokens are granted
	// again. Use it for tests, and for work that needs no fencing.
	Relaxed
)

var durabilityNames = [...]string{"durable", "relaxed"}

func (d Durability) String() string {
	if int(d) >= len(durabilityNames) {
		return fmt.Sprintf("Durability(%d)", uint8(d))
	}
	return durabilityNames[d]
}

// A Config configures a Store. The zero value of every field is a good default.
type Config struct {
	// Durability says which failures an answered change survives. Default: Durable.
	Durability Durability

	// BusyTimeout is how long a transaction waits while another program, such as a backup or the
	// sqlite3 shell, has the file locked. After that time, the error is *lease.BusyError. 0 =
	// DefaultBusyTimeout, negative = no wait.
	BusyTimeout time.Duration

	// CacheBytes is roughly how much memory cached rows may take. The Store need not read a
	// cached row to decide a request. 0 = DefaultCacheBytes, negative = no cache.
	CacheBytes int

	// Logger receives failed transactions, a clock that was set back, and a lost or damaged WAL.
	// nil = nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if int(c.Durability) >= len(durabilityNames) {
		return c, &lease.InvalidError{Field: "Durability", Value: c.Durability.String(), Remedy: "use Durable or Relaxed"}
	}
	c.BusyTimeout = max(cmp.Or(c.BusyTimeout, DefaultBusyTimeout), 0)
	c.CacheBytes = max(cmp.Or(c.CacheBytes, DefaultCacheBytes), 0)
	c.Logger = background.Logger(c.Logger)
	return c, nil
}
