package agents

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/middleware/echov4"
	monitorecho "github.com/pglatch/pglatch/monitor/echov4"
	"github.com/pglatch/pglatch/namespace"
)

// Handler returns the App's HTTP interface.
func (a *App) Handler() http.Handler { return a.echo }

func (a *App) routes() error {
	a.echo = echo.New()
	a.echo.Use(a.tokens.authorize)
	a.echo.HTTPErrorHandler = func(err error, c echo.Context) {
		if _, told := errors.AsType[*echo.HTTPError](err); told { // Echo's own, such as a 404
			a.echo.DefaultHTTPErrorHandler(err, c)
			return
		}
		p := middleware.Problem(err)
		if p.Status == http.StatusInternalServerError { // the client is not told why
			a.config.Logger.Warn("request_failed", slog.String("path", c.Path()), slog.Any("error", err))
		}
		if !c.Response().Committed { // else the lock's middleware has answered
			p.Respond(c.Response())
		}
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
			return err
		}
		a.echo.POST("/hook/"+name, a.serveHook(name, hook), locked)
	}
	a.echo.GET("/hook/status", a.serveStatus)
	a.echo.GET("/api/events", a.serveEvents)
	a.echo.POST("/api/handoff", a.serveHandoff)
	if a.config.ConfigPath != "" {
		a.echo.PATCH("/api/config", configEditor(a.config.ConfigPath).serve)
	}
	monitorecho.Register(a.echo, "", a.monitor)
	return nil
}

// A Status is the answer to /hook/status.
type Status struct {
	Replica      string `json:"replica"`
	ActiveAgents int    `json:"active_agents"`
	LocksHeld    int    `json:"locks_held"` // by this replica
}

// serveStatus reads only, so it neither takes a lock nor waits for one.
func (a *App) serveStatus(c echo.Context) error {
	ids, err := a.ids(c.Request().Context(), active)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, Status{a.config.Replica, len(ids), a.locker.Stats().Held})
}

// serveEvents sends the events of this replica until the client leaves or the App ends its streams.
func (a *App) serveEvents(c echo.Context) error {
	events, leave := a.broadcaster.subscribe()
	defer leave()
	w := c.Response()
	w.Header().Set(echo.HeaderContentType, "text/event-stream")
	for {
		w.Flush()
		select {
		case e := <-events:
			if _, err := fmt.Fprintf(w, "data: {\"agent_id\":%d,\"hook\":%q}\n\n", e.agentID, e.hook); err != nil {
				return nil // the client left
			}
		case <-a.streaming.Done():
			return nil
		case <-c.Request().Context().Done():
			return nil
		}
	}
}

// refuse returns the error that answers a request with this status.
func refuse(status int, detail string) error {
	return &middleware.RequestError{Status: status, Title: http.StatusText(status), Detail: detail}
}
