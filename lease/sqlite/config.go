package sqlite

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// The defaults of a Config.
const (
	DefaultBusyTimeout = time.Second
	DefaultCacheBytes  = 32 << 20
)

// Durability says what an answer survives.
type Durability uint8

// The durabilities.
const (
	// Durable answers survive a crash of the machine and a power failure: each
	// transaction is synced to the disk before anybody in it is answered.
	Durable Durability = iota
	// Relaxed answers survive a crash of the process, kill -9 included. A crash of the
	// machine can take back the last transactions: leases, and with them their tokens,
	// which are then granted again. For tests, and for work that needs no fencing.
	Relaxed
)

var durabilityNames = [...]string{"durable", "relaxed"}

func (d Durability) String() string {
	if int(d) >= len(durabilityNames) {
		return fmt.Sprintf("Durability(%d)", uint8(d))
	}
	return durabilityNames[d]
}

// A Config is how a Store works. The zero value is a good default.
type Config struct {
	// Durability is what an answer survives. Default: Durable.
	Durability Durability

	// BusyTimeout is how long a transaction waits while another program has the file
	// locked, as a backup or the sqlite3 shell may, before it fails with
	// *lease.BusyError. 0 = DefaultBusyTimeout, negative = it does not wait.
	BusyTimeout time.Duration

	// CacheBytes is about how much memory rows may take that are kept to decide without
	// reading them. 0 = DefaultCacheBytes, negative = none are kept.
	CacheBytes int

	// Logger gets transactions that failed, of a clock that was set back, and of a
	// WAL that was lost or damaged. nil = nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if int(c.Durability) >= len(durabilityNames) {
		return c, &lease.InvalidError{Field: "Durability", Value: c.Durability.String(), Remedy: "use Durable or Relaxed"}
	}
	c.BusyTimeout = max(cmp.Or(c.BusyTimeout, DefaultBusyTimeout), 0)
	c.CacheBytes = max(cmp.Or(c.CacheBytes, DefaultCacheBytes), 0)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}
