package scheduler

import (
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5"
)

// Handler returns the node's HTTP interface:
//
//	GET  /query?q=text                search, on every node
//	GET  /leader, /readyz, /livez     as documented at leader.Elector.Handler
//	GET  /healthz                     an alias of /livez
func (n *Node) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /query", n.serveQuery)
	election := n.elector.Handler()
	for _, path := range []string{"/leader", "/readyz", "/livez"} {
		mux.Handle(path, election)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		alive := r.Clone(r.Context())
		alive.URL.Path = "/livez"
		election.ServeHTTP(w, alive)
	})
	return mux
}

// A Reply is the answer to a query.
type Reply struct {
	Node  string   `json:"node"`
	Repos []string `json:"repos"`
}

// serveQuery finds repositories by a part of their name.
func (n *Node) serveQuery(w http.ResponseWriter, r *http.Request) {
	ctx, text := r.Context(), r.FormValue("q")
	batch := &pgx.Batch{}
	batch.Queue(`INSERT INTO code.queries (node, text) VALUES ($1, $2)`, n.identity, text)
	reply := Reply{Node: n.identity}
	batch.Queue(`SELECT name FROM code.repos WHERE strpos(name, $1) > 0 ORDER BY name LIMIT 100`, text).Query(func(rows pgx.Rows) (err error) {
		reply.Repos, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := n.pool.SendBatch(ctx, batch).Close(); err != nil {
		n.config.Logger.Warn("request_failed", slog.String("path", r.URL.Path), slog.Any("error", err))
		http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reply) // an error means that the client has gone
}
