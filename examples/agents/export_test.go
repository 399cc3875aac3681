package agents

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// WorkPool is the pool for everything but locks.
func (a *App) WorkPool() *pgxpool.Pool { return a.pool }

// Worker returns the background worker of that name.
func (a *App) Worker(name string) *Worker {
	for _, w := range a.workers {
		if w.Name == name {
			return w
		}
	}
	panic("no worker " + name)
}

// Summariser returns the App's Summariser.
func (a *App) Summariser() *Summariser { return a.summariser }

// Injector returns the App's Injector.
func (a *App) Injector() *Injector { return a.injector }

// Broadcaster returns the registry of connected clients.
func (a *App) Broadcaster() *Broadcaster { return a.broadcaster }

// DeferredStop is the work that a stop without an answer starts in the background.
func (a *App) DeferredStop(ctx context.Context, agentID int32, commandID int64) (bool, error) {
	return a.deferredStop(ctx, agentID, commandID)
}
