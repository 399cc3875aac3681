package scheduler

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// WorkConns is the size of a node's work pool. Leadership uses one more connection.
const WorkConns = 15

// A Config configures a Node. The zero value of every field but DSN is a good default.
type Config struct {
	// DSN is the PostgreSQL URL or keyword/value string. Required.
	DSN string

	// Node names this node in logs. Its identity also has a random suffix, new for each
	// process. "" = the host's name.
	Node string

	// Mount is the directory that all nodes share, such as an NFS mount with the repositories. Open
	// fails with a *MountError unless it is a mounted directory in which files can be written.
	// "" = the nodes share none, and nothing is checked.
	Mount string

	// MountLocal allows a Mount in which nothing is mounted, for nodes that all run on one host.
	MountLocal bool

	// ScheduleInterval is the time between two runs of a scheduler. 0 = 30 s.
	ScheduleInterval time.Duration

	// RefreshAfter is how old a repository's index may be. 0 = 10 min.
	RefreshAfter time.Duration

	// Retention is how long finished jobs, queries and heartbeats are kept. 0 = 30 days.
	Retention time.Duration

	// JobInterval is how often a node without a job looks for one. 0 = 1 s.
	JobInterval time.Duration

	// HeartbeatInterval is the time between two signs of life. 0 = 5 s. A node that
	// missed three is considered dead: its jobs are queued again.
	HeartbeatInterval time.Duration

	// LeaseDuration is how long a disconnected leader keeps others out. 0 = 15 s.
	LeaseDuration time.Duration

	// Logger receives the node's events. nil = discard.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.DSN == "" {
		return c, fmt.Errorf("scheduler: DSN is empty: set it to the URL of a PostgreSQL database")
	}
	if c.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("scheduler: Node is empty, and the host has no name: %w", err)
		}
		c.Node = host
	}
	c.ScheduleInterval = cmp.Or(c.ScheduleInterval, 30*time.Second)
	c.RefreshAfter = cmp.Or(c.RefreshAfter, 10*time.Minute)
	c.Retention = cmp.Or(c.Retention, 30*24*time.Hour)
	c.JobInterval = cmp.Or(c.JobInterval, time.Second)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}

// identity returns a name that distinguishes this process from every other, also from earlier ones of the same node.
func (c Config) identity() string { return c.Node + "-" + strings.ToLower(rand.Text()[:8]) }
