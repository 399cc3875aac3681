package agents

import (
	"context"
	"errors"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// watchdog ends agents whose process is gone, because a killed agent sends no session-end.
// It assumes that replicas and agents run on one host.
func (a *App) watchdog() *Worker {
	return a.worker("watchdog", func(ctx context.Context, tx pgx.Tx, agent *Agent, newest *Command) ([]int64, error) {
		if agent.EndedAt != nil || alive(agent.PID) {
			return nil, nil
		}
		return nil, endAgent(ctx, tx, agent, newest)
	})
}

func alive(pid int) bool {
	return pid <= 0 || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
