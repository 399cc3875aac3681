package scheduler

import (
	"context"
	"log/slog"
)

// missed is the number of missed heartbeats after which a node is considered dead.
const missed = 3

// beat records that this process is alive.
func (n *Node) beat(ctx context.Context) error {
	_, err := n.pool.Exec(ctx, `INSERT INTO code.heartbeats (node, at) VALUES ($1, now())
		ON CONFLICT (node) DO UPDATE SET at = excluded.at`, n.identity)
	return err
}

// reconcile queues the jobs of dead nodes again. All nodes run it. It does not matter which of
// them comes first.
func (n *Node) reconcile(ctx context.Context) error {
	tag, err := n.pool.Exec(ctx, `UPDATE code.jobs SET state = 'queued', node = NULL
		WHERE state = 'running' AND node NOT IN (SELECT node FROM code.heartbeats WHERE at > now() - $1::interval)`,
		missed*n.config.HeartbeatInterval)
	if err == nil && tag.RowsAffected() > 0 {
		n.config.Logger.Info("jobs_requeued", slog.Int64("jobs", tag.RowsAffected()))
	}
	return err
}
