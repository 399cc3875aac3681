package scheduler

import (
	"context"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/services"
)

// standForElection creates the elector and the list of services that run only on the leader.
// It starts nothing.
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

// leaderOnly specifies a scheduler that is built only on the leader.
func (n *Node) leaderOnly(name string, schedule scheduleFunc) services.Spec {
	return services.Spec{Name: name, New: func(context.Context) (services.Service, error) {
		return n.newScheduler(name, schedule), nil
	}}
}
