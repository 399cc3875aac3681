package chat

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// A Reply is one turn of a conversation.
type Reply struct {
	Messages []string `json:"messages"` // their IDs
	Text     string   `json:"text"`
	Replica  string   `json:"replica"`
}

// Handler serves the requests.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /conversations/{id}", s.respond(func(r *http.Request, conversation namespace.Key) (int, any, error) {
		var message struct{ ID, Text string }
		if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<20)).Decode(&message); err != nil {
			return http.StatusBadRequest, nil, err
		}
		ticket, err := s.send(r.Context(), conversation, message.ID, message.Text)
		return http.StatusAccepted, map[string]any{"number": ticket.Number, "again": ticket.Again}, err
	}))
	mux.HandleFunc("GET /conversations/{id}", s.respond(func(r *http.Request, conversation namespace.Key) (int, any, error) {
		rows, err := s.pool.Query(r.Context(), `SELECT ids, reply, replica FROM replies WHERE conversation = $1 ORDER BY n`, conversation.Entity())
		if err != nil {
			return 0, nil, err
		}
		replies, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Reply])
		return http.StatusOK, replies, err
	}))
	mux.HandleFunc("DELETE /conversations/{id}/turn", s.respond(func(r *http.Request, conversation namespace.Key) (int, any, error) {
		return http.StatusOK, "stopping", s.stop(r.Context(), conversation)
	}))
	return mux
}

// respond turns the result of a request into a response.
func (s *Service) respond(serve func(r *http.Request, conversation namespace.Key) (status int, body any, err error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		status, body := http.StatusBadRequest, any(nil)
		conversation, err := Conversations.Text(r.PathValue("id"))
		if err == nil {
			status, body, err = serve(r, conversation)
		}
		switch {
		case err == nil:
		case errors.Is(err, turns.ErrNotRunning):
			status = http.StatusConflict
		case errors.Is(err, turns.ErrLimit):
			status = http.StatusTooManyRequests
		case status != http.StatusBadRequest: // the client sends it again, with the same ID
			status = http.StatusServiceUnavailable
		}
		if err != nil {
			body = map[string]string{"error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // the client may be gone
	}
}
