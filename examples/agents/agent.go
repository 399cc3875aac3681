package agents

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// An Agent is a row of hooks.agents, as read. It stays current only while the agent's lock
// is held.
type Agent struct {
	ID               int32
	SessionID        string
	PID              int
	LastSeenAt       time.Time
	EndedAt          *time.Time
	PromptInjectedAt *time.Time
	TranscriptLines  int
}

// readAgent reads the agent and its newest command, which is nil if it has none. Without
// such an agent it returns pgx.ErrNoRows.
func readAgent(ctx context.Context, tx pgx.Tx, id int32) (*Agent, *Command, error) {
	rows, _ := tx.Query(ctx, `SELECT id, session_id, pid, last_seen_at, ended_at, prompt_injected_at, transcript_lines
		FROM hooks.agents WHERE id = $1`, id) // rows carries the error
	agent, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Agent])
	if err != nil {
		return nil, nil, err
	}
	newest, err := newestCommand(ctx, tx, id)
	return agent, newest, err
}

// findAgent returns the id of a session's agent, or pgx.ErrNoRows.
func findAgent(ctx context.Context, pool *pgxpool.Pool, session string) (id int32, err error) {
	err = pool.QueryRow(ctx, `SELECT id FROM hooks.agents WHERE session_id = $1`, session).Scan(&id)
	return id, err
}

// registerAgent returns the id of a session's agent and creates the agent if there is none.
// It never changes an existing agent: its lock is not held here.
func registerAgent(ctx context.Context, pool *pgxpool.Pool, session string) (int32, error) {
	if _, err := pool.Exec(ctx, `INSERT INTO hooks.agents (session_id) VALUES ($1) ON CONFLICT DO NOTHING`, session); err != nil {
		return 0, err
	}
	return findAgent(ctx, pool, session)
}

// activeAgents returns the ids of the agents that have not ended.
func activeAgents(ctx context.Context, pool *pgxpool.Pool) ([]int32, error) {
	rows, _ := pool.Query(ctx, `SELECT id FROM hooks.agents WHERE ended_at IS NULL ORDER BY id`)
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

// startAgent marks an agent as running, also a session that is resumed after its end.
func startAgent(ctx context.Context, tx pgx.Tx, a *Agent, pid int) error {
	_, err := tx.Exec(ctx, `UPDATE hooks.agents SET ended_at = NULL, pid = $2 WHERE id = $1`, a.ID, pid)
	return err
}

// seeAgent records a sign of life of an agent.
func seeAgent(ctx context.Context, tx pgx.Tx, a *Agent) error {
	_, err := tx.Exec(ctx, `UPDATE hooks.agents SET last_seen_at = now() WHERE id = $1`, a.ID)
	return err
}

// endAgent marks an agent as ended and completes its newest command.
func endAgent(ctx context.Context, tx pgx.Tx, a *Agent, newest *Command) error {
	if _, err := tx.Exec(ctx, `UPDATE hooks.agents SET ended_at = now() WHERE id = $1 AND ended_at IS NULL`, a.ID); err != nil {
		return err
	}
	if !newest.open() {
		return nil
	}
	return setState(ctx, tx, newest, Complete)
}
