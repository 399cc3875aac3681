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

// WorkConns is the size of a node's pool for work. Leadership has one connection
// more.
const WorkConns = 15

// A Config says how to open a Node. The zero value of every field but DSN is a good
// default.
type Config struct {
	// DSN is the PostgreSQL URL or keyword/value string. Required.
	DSN string

	// Node is this node in logs; its identity has a random suffix too, new for each
	// process. "" = the host's name.
	Node string

	// Mount is the directory that all nodes share, such as an NFS mount with the repositories. Open
	// fails with a *MountError unless it is a directory in which files can be written, and
	// something is mounted there. "" = the nodes share none, and nothing is checked.
	Mount string

	// MountLocal lets Mount be a directory in which nothing is mounted: where all nodes
	// run on one host.
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
	// missed three is taken for dead: its jobs are queued again.
	HeartbeatInterval time.Duration

	// LeaseDuration is what a leader that is cut off costs. 0 = 15 s.
	LeaseDuration time.Duration

	// Logger gets what happens. nil = discard.
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

// identity tells this process from every other, also from the same node's last one.
func (c Config) identity() string { return c.Node + "-" + strings.ToLower(rand.Text()[:8]) }
