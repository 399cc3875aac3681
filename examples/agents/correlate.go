package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

const (
	maxBody = 1 << 20 // bytes of a request body
	hookKey = "hook"  // key of the *Hook in an echo.Context
)

var validSession = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// correlate finds the agent of a hook by the session in the body, and returns the key to
// lock. It changes nothing, except that session-start registers a new session. Before any
// lock, a hook without a session gets 400 and one with an unknown session gets 404.
func (a *App) correlate(c echo.Context, name string) (namespace.Key, error) {
	r := c.Request()
	body, err := middleware.BufferBody(r, maxBody)
	if err != nil {
		return namespace.Key{}, err
	}
	h := &Hook{name: name}
	if err := json.Unmarshal(body, h); err != nil {
		return namespace.Key{}, refuse(http.StatusBadRequest, "the body is not the JSON of a hook")
	}
	if !validSession.MatchString(h.SessionID) {
		return namespace.Key{}, refuse(http.StatusBadRequest, "session_id is missing, or not 1 to 128 letters, digits, dots, dashes and underscores")
	}
	if name == "session-start" {
		h.agentID, err = registerAgent(r.Context(), a.pool, h.SessionID)
	} else {
		h.agentID, err = a.agentOf(r.Context(), h.SessionID)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return namespace.Key{}, refuse(http.StatusNotFound, "no agent has this session_id: session-start registers one")
	}
	if err != nil {
		return namespace.Key{}, fmt.Errorf("agents: correlate session: %w", err)
	}
	c.Set(hookKey, h)
	return Agents.ID(int64(h.agentID)), nil
}

// agentOf returns the id of a session's agent, or pgx.ErrNoRows.
func (a *App) agentOf(ctx context.Context, session string) (int32, error) {
	if id, ok := a.sessions.Find(session); ok {
		return id, nil
	}
	id, err := findAgent(ctx, a.pool, session)
	if err == nil {
		a.sessions.Add(session, id)
	}
	return id, err
}

func refuse(status int, detail string) error {
	return &middleware.RequestError{Status: status, Title: http.StatusText(status), Detail: detail}
}
