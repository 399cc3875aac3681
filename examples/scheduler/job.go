package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// missed is the number of missed heartbeats after which a node is considered dead.
const missed = 3

// beat records that this process is alive.
func (n *Node) beat(ctx context.Context) error {
	_, err := n.pool.Exec(ctx, `INSERT INTO code.heartbeats (node, at) VALUES ($1, now())
		ON CONFLICT (node) DO UPDATE SET at = excluded.at`, n.identity)
	return err
}

// reconcile queues the jobs of dead nodes again. All nodes run it. It does not matter which of them comes first.
func (n *Node) reconcile(ctx context.Context) error {
	tag, err := n.pool.Exec(ctx, `UPDATE code.jobs SET state = 'queued', node = NULL
		WHERE state = 'running' AND node NOT IN (SELECT node FROM code.heartbeats WHERE at > now() - $1::interval)`,
		missed*n.config.HeartbeatInterval)
	if err == nil && tag.RowsAffected() > 0 {
		n.config.Logger.Info("jobs_requeued", slog.Int64("jobs", tag.RowsAffected()))
	}
	return err
}

// work does jobs until there are none or ctx ends.
func (n *Node) work(ctx context.Context) error {
	for {
		var id int
		var takes time.Duration
		// SKIP LOCKED gives different jobs to nodes that claim at the same moment.
		err := n.pool.QueryRow(ctx, `UPDATE code.jobs SET state = 'running', node = $1
			WHERE id = (SELECT id FROM code.jobs WHERE state = 'queued' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1)
			RETURNING id, work`, n.identity).Scan(&id, &takes)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("claim a job: %w", err)
		}
		if err := n.do(ctx, id, takes); err != nil {
			return errors.Join(fmt.Errorf("job %d: %w", id, err), n.giveBack(id))
		}
	}
}

// do indexes the repository and finishes the job. If another node has the job by now, nothing changes.
func (n *Node) do(ctx context.Context, job int, takes time.Duration) error {
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := n.pool.Exec(ctx, `WITH finished AS (
			UPDATE code.jobs SET state = 'done', done_at = now()
			WHERE id = $1 AND state = 'running' AND node = $2 RETURNING repo_id)
		UPDATE code.repos SET refreshed_at = now() FROM finished WHERE id = repo_id`, job, n.identity)
	return err
}

// giveBack queues an unfinished job again.
func (n *Node) giveBack(job int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := n.pool.Exec(ctx, `UPDATE code.jobs SET state = 'queued', node = NULL
		WHERE id = $1 AND state = 'running' AND node = $2`, job, n.identity)
	return err
}
