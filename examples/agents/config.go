package agents

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// The connections of one replica. A lock is held on a connection of its own while
// the work under it runs on another: two pools, so that hooks which wait for locks
// never keep the holders from their work.
const (
	WorkConns = 15
	LockConns = 10
)

// A Config says how to open an App. The zero value of every field but DSN is a
// good default.
type Config struct {
	// DSN is the PostgreSQL URL or keyword/value string. Required.
	DSN string

	// Replica is this process in logs and, as "agents/<replica>", in the list of
	// locks. "" = the host's name.
	Replica string

	// LockTimeout is how long a hook waits for its agent's lock. 0 = 15 s.
	LockTimeout time.Duration

	// SessionTTL is after how long a replica that was stopped or cut off loses its
	// locks. 0 = 15 s.
	SessionTTL time.Duration

	// WorkerInterval is the pause between two cycles of a background worker. 0 = 5 s.
	WorkerInterval time.Duration

	// AgentTimeout is after how long without a hook the reaper ends an agent. 0 = 5 min.
	AgentTimeout time.Duration

	// StopTries is how many times, StopPause apart, the deferred stop looks for the
	// agent's answer. 0 = 20 and 250 ms.
	StopTries int
	StopPause time.Duration

	// TranscriptDir has the agents' transcripts, <session_id>.txt. "" = none are read.
	TranscriptDir string

	// ConfigPath is the JSON file that PATCH /api/config edits. "" = no such route.
	ConfigPath string

	// Tokens are the bearer tokens, of 16 bytes at least, of which every request must
	// have one: hooks and the list of locks alike. nil = only requests from this host are answered,
	// and Serve refuses an address that others can reach.
	Tokens []string

	// Model writes summaries of turns. nil = the first words.
	Model Model

	// Skills returns the skills of an agent's persona. Every hook asks for them, until
	// there are some: these the agent gets with the hook's answer, once. nil = no skills.
	Skills func(ctx context.Context, agent *Agent) (string, error)

	// Logger gets what happens in the background. nil = discard.
	Logger *slog.Logger

	// Demo lets hooks ask for work that takes time (work_ms) and writes the begin and
	// end of every hook to hooks.spans.
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
