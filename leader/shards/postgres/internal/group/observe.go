package group

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// A Term is the last term of a shard.
type Term struct {
	Name string
	Era  uint16
	N    uint64
}

// Observe returns a snapshot of the group and the last terms of all shards that were ever claimed. conn is
// not a lock session.
func (g Group) Observe(ctx context.Context, conn *pgx.Conn) (v View, terms []Term, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly, IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		const text = pgx.QueryExecModeSimpleProtocol
		if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('search_path', 'pg_catalog', true)`, text); err != nil {
			return err
		}
		row := make([]string, 4)
		var may bool // an observer writes nothing
		var pid uint32
		if err := tx.QueryRow(ctx, g.lookQuery(0), text).Scan(&row[0], &row[1], &row[2], &row[3], &may, &pid); err != nil {
			return err
		}
		if v, err = viewOf(row); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, fmt.Sprintf(`SELECT name, era::int8, n FROM %s WHERE shards = %s`, g.Terms, g.NameSQL()), text) // after the view: each owner has a term
		if err != nil {
			return err
		}
		terms, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Term])
		return err
	})
	return v, terms, err
}
