package scheduler

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// refresh queues a job for each repository whose index is old, unless one is open.
func (n *Node) refresh(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO code.jobs (repo_id)
		SELECT id FROM code.repos r
		WHERE (refreshed_at IS NULL OR refreshed_at < now() - $1::interval)
		AND NOT EXISTS (SELECT FROM code.jobs WHERE repo_id = r.id AND state <> 'done')`, n.config.RefreshAfter)
	return err
}

// retain deletes finished jobs, queries and heartbeats that are older than Config.Retention.
func (n *Node) retain(ctx context.Context, tx pgx.Tx) error {
	for _, sql := range []string{
		`DELETE FROM code.jobs WHERE done_at < now() - $1::interval`,
		`DELETE FROM code.queries WHERE at < now() - $1::interval`,
		`DELETE FROM code.heartbeats WHERE at < now() - $1::interval`,
	} {
		if _, err := tx.Exec(ctx, sql, n.config.Retention); err != nil {
			return err
		}
	}
	return nil
}

// describe writes a description of each repository that is indexed and has none.
func describe(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `UPDATE code.repos
		SET description = format('%s, which uses %s others', name, cardinality(imports))
		WHERE description IS NULL AND refreshed_at IS NOT NULL`)
	return err
}

// mapDependencies updates the dependency map from the repositories' imports.
func mapDependencies(ctx context.Context, tx pgx.Tx) error {
	const wanted = `SELECT r.id, o.id FROM code.repos r JOIN code.repos o ON o.name = ANY(r.imports)`
	if _, err := tx.Exec(ctx, `DELETE FROM code.dependencies WHERE (repo_id, needs) NOT IN (`+wanted+`)`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO code.dependencies (repo_id, needs) `+wanted+` ON CONFLICT DO NOTHING`)
	return err
}
