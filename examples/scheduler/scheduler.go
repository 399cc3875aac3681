package scheduler

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/services"
)

// standForElection creates the elector and the list of services that run only on the leader. It starts nothing.
func (n *Node) standForElection() error {
	backend, err := postgres.New(postgres.Config{
		DSN:         n.config.DSN, // a separate connection, not one of the pool
		Key:         Schedulers,
		CreateTable: true,
		Logger:      n.config.Logger,
	})
	if err != nil {
		return err
	}
	n.elector, err = leader.New(leader.Config{
		Name: "schedulers", Backend: backend, Identity: n.identity, Callbacks: n.announce(), Logger: n.config.Logger,
	})
	if err != nil {
		return err
	}
	n.services, err = services.New(n.elector, services.Config{Services: []services.Spec{
		n.leaderOnly("refresh", n.refresh),
		n.leaderOnly("data_retention", n.retain),
		n.leaderOnly("description_hook", describe),
		n.leaderOnly("dependency_map", mapDependencies),
	}})
	return err
}

// announce logs what each outcome of the election means for this node. A follower says it once, however often it tries.
func (n *Node) announce() leader.Callbacks {
	log, follows := n.config.Logger, false // callbacks are called one after the other
	acquired := func(term leader.Term) {
		follows = false
		log.Info("acquired leadership, starting schedulers", slog.String("term", term.String()))
	}
	return leader.Callbacks{OnAcquired: acquired, OnRecovered: acquired, OnAcquireFailed: func(err error) {
		if err == nil && !follows {
			follows = true
			log.Info("not leader, skipping scheduler startup")
		}
	}}
}

// A scheduleFunc is one run of a scheduler in a guarded transaction.
type scheduleFunc func(ctx context.Context, tx pgx.Tx) error

// A scheduler is a services.Service that repeats a schedule during one leadership.
type scheduler struct {
	name     string
	node     *Node
	schedule scheduleFunc
	log      *slog.Logger
	running  sync.WaitGroup
}

// leaderOnly specifies a scheduler that is built only on the leader.
func (n *Node) leaderOnly(name string, schedule scheduleFunc) services.Spec {
	return services.Spec{Name: name, New: func(context.Context) (services.Service, error) {
		s := &scheduler{name: name, node: n, schedule: schedule, log: n.config.Logger.With(slog.String("service", name))}
		s.log.Info("scheduler_built")
		return s, nil
	}}
}

// Start starts the runs. They end with ctx, that is, with leadership.
func (s *scheduler) Start(ctx context.Context) error {
	s.running.Go(func() { every(ctx, s.node.config.ScheduleInterval, s.log, s.run) })
	return nil
}

// Stop waits for the current run to end. If that takes too long, services.Group does not wait for Stop.
func (s *scheduler) Stop(context.Context) error {
	s.running.Wait()
	return nil
}

// run does one run and records it in the same transaction. It commits only if the term of ctx still leads.
func (s *scheduler) run(ctx context.Context) error {
	return postgres.InTx(ctx, s.node.pool, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.schedule(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO code.runs (scheduler, node, term) VALUES ($1, $2, $3)`,
			s.name, s.node.identity, int64(leader.TermOfContext(ctx).Uint64()))
		return err
	})
}

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
