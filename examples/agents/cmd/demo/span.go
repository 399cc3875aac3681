package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// A span is a row that a hook's handler wrote when it began and updated when it ended. Both
// times are PostgreSQL's, and the handler held the agent's lock at both.
type span struct {
	ID      int64
	AgentID int32
	Replica string
	Began   time.Time
	Ended   *time.Time // nil = not yet, or never
}

// spans returns the spans of some agents.
func (d *demo) spans(ctx context.Context, of ...agent) ([]span, error) {
	ids := make([]int32, len(of))
	for i, a := range of {
		ids[i] = a.id
	}
	rows, _ := d.db.Query(ctx, `SELECT id, agent_id, replica, began_at, ended_at FROM hooks.spans
		WHERE agent_id = ANY($1) AND hook <> 'session-start' ORDER BY began_at`, ids)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[span])
}

// awaitSpan waits until the agent's first span at a replica has begun, and returns it.
func (d *demo) awaitSpan(ctx context.Context, of agent, at *replica) (s span, err error) {
	err = demokit.Await(ctx, fmt.Sprintf("a hook for %s at %s", of.session, at.Name), func() (bool, error) {
		all, err := d.spans(ctx, of)
		i := slices.IndexFunc(all, func(s span) bool { return s.Replica == at.Name })
		if i >= 0 {
			s = all[i]
		}
		return i >= 0, err
	})
	return s, err
}

// atOnce returns the largest number of spans that overlapped. A span without an end never
// ended.
func atOnce(spans []span) (most int) {
	for _, s := range spans {
		count := 0
		for _, o := range spans {
			if !o.Began.After(s.Began) && (o.Ended == nil || o.Ended.After(s.Began)) {
				count++
			}
		}
		most = max(most, count)
	}
	return most
}
