package scheduler

import (
	"context"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/services"
)

// standForElection makes the elector, and the list of what only the leader runs.
// Nothing starts.
func (n *Node) standForElection() error {
	backend, err := postgres.New(postgres.Config{
		DSN:         n.config.DSN, // a connection of its own, not one of the pool
		Key:         Schedulers,
		CreateTable: true,
		Logger:      n.config.Logger,
	})
	if err != nil {
		return err
	}
	n.elector, err = leader.New(leader.Config{
		Name:          "schedulers",
		Backend:       backend,
		Identity:      n.identity,
		LeaseDuration: n.config.LeaseDuration,
		Logger:        n.config.Logger,
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

// leaderOnly is a scheduler that is built on the leader, and nowhere else.
func (n *Node) leaderOnly(name string, schedule scheduleFunc) services.Spec {
	return services.Spec{Name: name, New: func(context.Context) (services.Service, error) {
		return n.newScheduler(name, schedule), nil
	}}
}
