package turns

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// Stats describe a mailbox at one moment, across all nodes.
type Stats struct {
	Ready   int64 // entities that have messages and no turn, including paused ones
	Running int64 // entities with a turn
	Stopped int64 // entities that a dead letter stopped
	Dead    int64 // dead letters
	Nodes   int64 // that serve: those that hold their locks

	// OldestReady is how long the next entity has been ready; 0 = no entity is ready.
	OldestReady time.Duration
}

const statsSQL = `SELECT
	(SELECT pg_catalog.count(*) FROM pglatch_turns.entities WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text AND state OPERATOR(pg_catalog.=) 'ready'),
	(SELECT pg_catalog.count(*) FROM pglatch_turns.entities WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text AND state OPERATOR(pg_catalog.=) 'running'),
	(SELECT pg_catalog.count(*) FROM pglatch_turns.entities WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text AND state OPERATOR(pg_catalog.=) 'stopped'),
	(SELECT pg_catalog.count(*) FROM pglatch_turns.dead WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text),
	(SELECT pg_catalog.count(*) FROM pglatch_turns.nodes WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text AND key OPERATOR(pg_catalog.=) ANY (
		SELECT (classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) objid::pg_catalog.int8 FROM pg_catalog.pg_locks
		WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND objsubid OPERATOR(pg_catalog.=) 1 AND granted
			AND ` + pgsession.WhereDatabase + `)),
	coalesce((SELECT extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.min(ready_at))::pg_catalog.float8 FROM pglatch_turns.entities
		WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text AND state OPERATOR(pg_catalog.=) 'ready'), 0)`

// Stats counts the mailbox's entities and dead letters. The cost grows with the number of entities
// that have messages, and of dead letters.
func (m *Mailbox) Stats(ctx context.Context) (s Stats, err error) {
	var oldest float64
	err = m.config.Pool.QueryRow(ctx, statsSQL, m.config.Name).Scan(&s.Ready, &s.Running, &s.Stopped, &s.Dead, &s.Nodes, &oldest)
	s.OldestReady = max(time.Duration(oldest*float64(time.Second)), 0)
	return s, failed(err)
}

// An Observer has functions that receive what happens to turns of this process. They must not block.
type Observer struct {
	// Ended receives the end of each turn whose handler was called.
	Ended func(TurnData)
}

// TurnData describes how a turn ended.
type TurnData struct {
	Key       namespace.Key
	Attempt   int
	Messages  int
	Took      time.Duration // with the mutex
	Committed bool
	Err       error // of the handler, or of the commit
}

func (o Observer) ended(logger *slog.Logger, data TurnData) {
	if o.Ended == nil {
		return
	}
	err := background.Outlive(func() error { o.Ended(data); return nil })
	if panicked, ok := errors.AsType[*background.PanicError](err); ok {
		logger.Error("turns_observer_panicked", slog.Any("panic", panicked.Value), slog.String("stack", string(panicked.Stack)))
	}
}
