package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A job is one repository to index.
type job struct {
	id, repo int
	work     time.Duration
}

// work does jobs until there are none or ctx ends.
func (n *Node) work(ctx context.Context) error {
	for {
		j, err := n.claim(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("claim a job: %w", err)
		}
		if err := n.do(ctx, j); err != nil {
			return errors.Join(fmt.Errorf("job %d: %w", j.id, err), n.giveBack(j))
		}
	}
}

// claim takes the oldest queued job. SKIP LOCKED gives different jobs to nodes that claim
// at the same moment. pgx.ErrNoRows = there is none.
func (n *Node) claim(ctx context.Context) (j job, err error) {
	err = n.pool.QueryRow(ctx, `UPDATE code.jobs SET state = 'running', node = $1
		WHERE id = (SELECT id FROM code.jobs WHERE state = 'queued' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1)
		RETURNING id, repo_id, work`, n.identity).Scan(&j.id, &j.repo, &j.work)
	return j, err
}

// do indexes the repository and finishes the job. If another node has the job by now, nothing
// changes.
func (n *Node) do(ctx context.Context, j job) error {
	timer := time.NewTimer(j.work)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := n.pool.Exec(ctx, `WITH finished AS (
			UPDATE code.jobs SET state = 'done', done_at = now()
			WHERE id = $1 AND state = 'running' AND node = $2 RETURNING repo_id)
		UPDATE code.repos SET refreshed_at = now() FROM finished WHERE id = repo_id`, j.id, n.identity)
	return err
}

// giveBack queues an unfinished job again.
func (n *Node) giveBack(j job) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := n.pool.Exec(ctx, `UPDATE code.jobs SET state = 'queued', node = NULL
		WHERE id = $1 AND state = 'running' AND node = $2`, j.id, n.identity)
	return err
}
