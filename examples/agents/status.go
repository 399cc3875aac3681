package agents

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
)

// A Status is the answer to /hook/status.
type Status struct {
	Replica      string `json:"replica"`
	ActiveAgents int    `json:"active_agents"`
	LocksHeld    int    `json:"locks_held"` // by this replica
	Clients      int    `json:"clients"`    // connected to /api/events of this replica
}

// serveStatus reads only, so it neither takes a lock nor waits for one.
func (a *App) serveStatus(c echo.Context) error {
	ids, err := activeAgents(c.Request().Context(), a.pool)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, Status{
		Replica: a.config.Replica, ActiveAgents: len(ids),
		LocksHeld: a.locker.Stats().Held, Clients: a.broadcaster.Clients(),
	})
}

// serveEvents sends the events of this replica until the client leaves or the App closes.
func (a *App) serveEvents(c echo.Context) error {
	events, leave := a.broadcaster.Subscribe()
	defer leave()
	w := c.Response()
	w.Header().Set(echo.HeaderContentType, "text/event-stream")
	w.Header().Set(echo.HeaderCacheControl, "no-store")
	w.WriteHeader(http.StatusOK)
	w.Flush()
	for {
		select {
		case <-c.Request().Context().Done():
			return nil
		case e, ok := <-events:
			if !ok {
				return nil
			}
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
				return nil // the client left
			}
			w.Flush()
		}
	}
}
