package agents

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/middleware/echov4"
	monitorecho "github.com/pglatch/pglatch/monitor/echov4"
	"github.com/pglatch/pglatch/namespace"
)

// Handler returns the App's HTTP interface.
func (a *App) Handler() http.Handler { return a.echo }

func (a *App) routes() (*echo.Echo, error) {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Use(a.tokens.authorize)
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if _, told := errors.AsType[*echo.HTTPError](err); !told { // the client gets a bare 500
			a.config.Logger.Warn("request_failed", slog.String("path", c.Path()), slog.Any("error", err))
		}
		e.DefaultHTTPErrorHandler(err, c)
	}
	for name, hook := range a.hooks() {
		locked, err := echov4.LockConfig{
			Locker:     a.locker,
			Key:        func(c echo.Context) (namespace.Key, error) { return a.correlate(c, name) },
			Label:      name,
			ShowHolder: true, // a client that can call hooks may know the replicas
			Logger:     a.config.Logger,
		}.ToMiddleware()
		if err != nil {
			return nil, err
		}
		e.POST("/hook/"+name, a.serveHook(hook), locked)
	}
	e.GET("/hook/status", a.serveStatus)
	e.GET("/api/events", a.serveEvents)
	e.POST("/api/handoff", a.serveHandoff)
	if a.config.ConfigPath != "" {
		e.PATCH("/api/config", serveConfig(NewConfigEditor(a.config.ConfigPath)))
	}
	monitorecho.Register(e, "", a.monitor)
	return e, nil
}

// A HookReply is the answer to a hook.
type HookReply struct {
	AgentID      int32  `json:"agent_id"`
	Replica      string `json:"replica"`
	CommandID    int64  `json:"command_id,omitempty"`
	CommandState string `json:"command_state,omitempty"`
	Skills       string `json:"skills,omitempty"` // for the agent to read; sent once
}

// serveHook answers a hook, under the agent's lock.
func (a *App) serveHook(hook hookFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Get(hookKey).(*Hook)
		if err := a.process(c.Request().Context(), h, hook); err != nil {
			return err
		}
		a.broadcaster.Publish(Event{AgentID: h.agentID, Hook: h.name})
		reply := HookReply{AgentID: h.agentID, Replica: a.config.Replica, Skills: h.skills}
		if h.command != nil {
			reply.CommandID, reply.CommandState = h.command.ID, h.command.State
		}
		return c.JSON(http.StatusOK, reply)
	}
}
