package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
)

// Observe implements driver.Observer, on a connection of its own, which takes no lock. It needs SELECT on the
// three tables. Any shard that was ever owned is included until somebody deletes its row.
func (b *Backend) Observe(ctx context.Context) (o driver.Observation, err error) {
	var seen group.View
	var terms []group.Term
	err = pgreach.Do(ctx, b.plain, func(conn *pgx.Conn) error {
		seen, terms, err = b.group.Observe(ctx, conn)
		return err
	})
	if b.config.CreateTable && sqlstate.Of(err) == sqlstate.UndefinedTable {
		return o, nil // no node has taken part yet
	}
	if err != nil {
		return o, fmt.Errorf("shards: looking at %s: %w", b.group.Namespace, b.failed(err))
	}
	o = driver.Observation{View: viewOf(seen), Terms: make(map[string]driver.Term, len(terms))}
	o.Version = 0
	for _, t := range terms {
		o.Terms[t.Name] = driver.Term{Era: t.Era, N: t.N}
	}
	for _, order := range seen.Orders {
		if order[0] == drainOrder {
			o.Drained = append(o.Drained, order[1])
		}
	}
	slices.Sort(o.Drained)
	return o, nil
}
