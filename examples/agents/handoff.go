package agents

import (
	"context"
	"encoding/json"
	"errors"
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
var errNoHandoff = refuse(http.StatusConflict, "from has no open command, to has one, or to has ended")

// handOff completes the open command of one agent, opens a command with the same words at the other, and returns its id.
func handOff(ctx context.Context, tx pgx.Tx, from, to int32) (commandID int64, err error) {
	_, command, err := readAgent(ctx, tx, from, newestCommand)
	if err != nil {
		return 0, err
	}
	heir, busy, err := readAgent(ctx, tx, to, newestCommand)
	if err != nil {
		return 0, err
	}
	if !command.open() || busy.open() || heir.EndedAt != nil {
		return 0, errNoHandoff
	}
	next, err := newCommand(ctx, tx, heir)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO hooks.turns (command_id, actor, text)
		SELECT $2, actor, text FROM hooks.turns WHERE command_id = $1 AND actor = 'user' ORDER BY id`, command.ID, next.ID)
	if err != nil {
		return 0, err
	}
	return next.ID, setState(ctx, tx, command, Complete)
}

// serveHandoff answers a Handoff with the command's id. Two agents change, so it holds both locks. AcquireAll takes them
// in a fixed order, so that hand-offs in opposite directions cannot deadlock.
func (a *App) serveHandoff(c echo.Context) error {
	var h Handoff
	ctx, body := c.Request().Context(), http.MaxBytesReader(c.Response(), c.Request().Body, maxBody)
	if err := json.NewDecoder(body).Decode(&h); err != nil || h.From == h.To {
		return refuse(http.StatusBadRequest, "send the sessions from and to, two of them")
	}
	from, err := a.agentOf(ctx, h.From)
	if err != nil {
		return err
	}
	to, err := a.agentOf(ctx, h.To)
	if err != nil {
		return err
	}
	lock, err := a.locker.With(advisory.Options{Label: "handoff"}).AcquireAll(ctx, Agents.ID(int64(from)), Agents.ID(int64(to)))
	if err != nil {
		return err
	}
	var id int64
	err = inTx(lock.Context(), a.pool, func(tx pgx.Tx) (err error) {
		id, err = handOff(lock.Context(), tx, from, to)
		return err
	})
	if err := errors.Join(err, lock.Release()); err != nil { // Release reports a lost lock
		return err
	}
	return c.JSON(http.StatusOK, map[string]int64{"command_id": id})
}
