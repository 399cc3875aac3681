package agents

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// The connections of one replica. A lock is held on one connection while the work under it
// runs on another. Two pools ensure that hooks waiting for locks never starve the holders
// of connections for their work.
const (
	WorkConns = 15
	LockConns = 10
)

// A Config configures an App. The zero value of every field but DSN is a good default.
type Config struct {
	// DSN is the PostgreSQL URL or keyword/value string. Required.
	DSN string

	// Replica names this process in logs and, as "agents/<replica>", in the list of
	// locks. "" = the host's name.
	Replica string

	// LockTimeout is how long a hook waits for its agent's lock. 0 = 15 s.
	LockTimeout time.Duration

	// SessionTTL is the time after which a stopped or disconnected replica loses its
	// locks. 0 = 15 s.
	SessionTTL time.Duration

	// WorkerInterval is the pause between two cycles of a background worker. 0 = 5 s.
	WorkerInterval time.Duration

	// AgentTimeout is the time without a hook after which the reaper ends an agent. 0 = 5 min.
	AgentTimeout time.Duration

	// StopTries is how often the deferred stop checks for the agent's answer, and StopPause the
	// pause between two checks. 0 = 20 and 250 ms.
	StopTries int
	StopPause time.Duration

	// TranscriptDir is the directory of the agents' transcripts, <session_id>.txt. "" = none are read.
	TranscriptDir string

	// ConfigPath is the JSON file that PATCH /api/config edits. "" = no such route.
	ConfigPath string

	// Tokens are the bearer tokens, of at least 16 bytes each. Every request needs one of them,
	// for hooks and for the list of locks alike. nil = only requests from this host are answered,
	// and Serve refuses an address that other hosts can reach.
	Tokens []string

	// Model writes summaries of turns. nil = the summary is the first words.
	Model Model

	// Skills returns the skills of an agent's persona. Every hook calls it until it returns
	// some. The agent receives them once, with that hook's answer. nil = no skills.
	Skills func(ctx context.Context, agent *Agent) (string, error)

	// Logger receives the events of background work. nil = discard.
	Logger *slog.Logger

	// Demo lets a hook ask for work that takes time (work_ms) and records the beginning and
	// end of every hook in hooks.spans.
	Demo bool
}

func (c Config) withDefaults() (Config, error) {
	if c.DSN == "" {
		return c, fmt.Errorf("agents: DSN is empty: set it to the URL of a PostgreSQL database")
	}
	if c.Replica == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("agents: Replica is empty, and the host has no name: %w", err)
		}
		c.Replica = host
	}
	c.WorkerInterval = cmp.Or(c.WorkerInterval, 5*time.Second)
	c.AgentTimeout = cmp.Or(c.AgentTimeout, 5*time.Minute)
	c.StopTries = cmp.Or(c.StopTries, 20)
	c.StopPause = cmp.Or(c.StopPause, 250*time.Millisecond)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Model == nil {
		c.Model = firstWords
	}
	if c.Skills == nil {
		c.Skills = func(context.Context, *Agent) (string, error) { return "", nil }
	}
	return c, nil
}
