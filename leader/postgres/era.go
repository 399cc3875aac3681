package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
)

// EraStep is how much NewEra raises the era. It must exceed the number of promotions that a restore may
// have undone.
const EraStep = 16

// NewEra raises the era of all elections of the table by EraStep and returns the number of elections. Their next terms
// are then greater than all that were counted before.
//
// It is for restores that the server cannot detect: if a copy from before a promotion was restored, or if the
// clock was set back. Run it on the restored database before candidates start. A leader keeps its term until
// its leadership ends. An election whose row was lost starts over at 1.1. If an era would be greater than
// driver.MaxEra, nothing is changed.
func (b *Backend) NewEra(ctx context.Context) (elections int64, err error) {
	err = pgreach.Do(ctx, b.plain, func(conn *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
			// A row without a pid belongs to nobody: Leader does not attribute its term to a holder.
			tag, err := tx.Exec(ctx, `UPDATE `+b.table+` SET era = era + $1, pid = 0`, EraStep)
			if err != nil {
				return err
			}
			elections = tag.RowsAffected()
			var greatest int
			if err := tx.QueryRow(ctx, `SELECT coalesce(max(era), 0) FROM `+b.table).Scan(&greatest); err != nil {
				return err
			}
			if greatest > driver.MaxEra {
				return fmt.Errorf("era %d is beyond %d", greatest, driver.MaxEra)
			}
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("leader: new era in the table %s: %w", b.config.Table, err)
	}
	return elections, nil
}
