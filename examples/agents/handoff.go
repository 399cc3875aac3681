package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/advisory"
)

// A Handoff moves the open command of one session's agent to another session's agent.
type Handoff struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// errNoHandoff means that there is nothing to hand off, or that the other agent is busy or has ended.
var errNoHandoff = errors.New("from has no open command, to has one, or to has ended")

// handOff completes the open command of one agent, opens a command with the same words at
// the other, and returns its id. Two agents change, so it holds both locks. AcquireAll takes
// them in a fixed order, so that hand-offs in opposite directions cannot deadlock.
func (a *App) handOff(ctx context.Context, from, to int32) (commandID int64, err error) {
	locker := a.locker.With(advisory.Options{Label: "handoff"})
	lock, err := locker.AcquireAll(ctx, Agents.ID(int64(from)), Agents.ID(int64(to)))
	if err != nil {
		return 0, fmt.Errorf("agents: hand off: %w", err)
	}
	err = inTx(lock.Context(), a.pool, func(tx pgx.Tx) error {
		ctx := lock.Context()
		_, command, err := readAgent(ctx, tx, from)
		if err != nil {
			return err
		}
		heir, busy, err := readAgent(ctx, tx, to)
		if err != nil {
			return err
		}
		if !command.open() || busy.open() || heir.EndedAt != nil {
			return errNoHandoff
		}
		next, err := newCommand(ctx, tx, heir)
		if err != nil {
			return err
		}
		commandID = next.ID
		_, err = tx.Exec(ctx, `INSERT INTO hooks.turns (command_id, actor, text)
			SELECT $2, actor, text FROM hooks.turns WHERE command_id = $1 AND actor = 'user' ORDER BY id`, command.ID, next.ID)
		if err != nil {
			return err
		}
		return setState(ctx, tx, command, Complete)
	})
	if err = errors.Join(err, lock.Release()); err != nil { // Release reports a lost lock
		return 0, fmt.Errorf("agents: hand off: %w", err)
	}
	return commandID, nil
}

// serveHandoff answers a Handoff with the command's id.
func (a *App) serveHandoff(c echo.Context) error {
	var h Handoff
	body := http.MaxBytesReader(c.Response(), c.Request().Body, maxBody)
	if err := json.NewDecoder(body).Decode(&h); err != nil || h.From == h.To {
		return echo.NewHTTPError(http.StatusBadRequest, "send the sessions from and to, two of them")
	}
	ctx := c.Request().Context()
	from, err := a.agentOf(ctx, h.From)
	if err != nil {
		return unknownSession(err)
	}
	to, err := a.agentOf(ctx, h.To)
	if err != nil {
		return unknownSession(err)
	}
	id, err := a.handOff(ctx, from, to)
	switch {
	case errors.Is(err, errNoHandoff):
		return echo.NewHTTPError(http.StatusConflict, errNoHandoff.Error())
	case errors.Is(err, advisory.ErrTimeout):
		return echo.NewHTTPError(http.StatusLocked, "somebody else works on one of the agents")
	case err != nil:
		return err
	}
	return c.JSON(http.StatusOK, map[string]int64{"command_id": id})
}

func unknownSession(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return echo.NewHTTPError(http.StatusNotFound, "no agent has this session")
	}
	return err
}
