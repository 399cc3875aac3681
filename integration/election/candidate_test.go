//go:build integration

package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// A candidate is a child that writes guarded transactions while it leads.
type candidate struct {
	*electiontest.Child
	writer ledgertest.Writer
}

// key is the election's in the ledger.
const key = "election"

// standOnPostgres is the role with the settings dsn, of the election through a proxy,
// and work, of the guarded transactions straight to the server.
func standOnPostgres(ctx context.Context, child *electiontest.Child) error {
	config, err := pgxpool.ParseConfig(child.Settings["work"])
	if err != nil {
		return err
	}
	config.MaxConns = 4
	work, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer work.Close()
	backend, err := postgres.New(postgres.Config{DSN: child.Settings["dsn"], Key: election, CreateTable: true})
	if err != nil {
		return err
	}
	c := &candidate{child, ledgertest.Writer{Pool: work, Node: fmt.Sprint(child.Node), Slow: 5 * time.Millisecond, Trace: child.Trace}}
	if !c.Reckless {
		c.writer.InTx = func(ctx context.Context, pool *pgxpool.Pool, write func(context.Context, pgx.Tx) error) error {
			return postgres.InTx(ctx, pool, write)
		}
	}
	err = c.Stand(ctx, backend, c.lead)
	c.writer.Close(c.Say)
	return err
}

// lead writes for as long as the node leads.
func (c *candidate) lead(leading context.Context) {
	term := leader.TermOfContext(leading)
	if c.Stubborn {
		c.writer.Defy(leading, key, term, 5*time.Millisecond, func() error { return c.ignoreGuard(leading, term) })
	}
	ctx := c.Outlasting(leading)
	// From here on no older term may write, not only from the first write on.
	_ = c.writer.Announce(ctx, key, term)
	for ctx.Err() == nil {
		_ = c.writer.Write(ctx, key, term)
		electiontest.Pause(ctx, rand.N(5*time.Millisecond))
	}
}

// ignoreGuard writes whatever the guard says.
func (c *candidate) ignoreGuard(ended context.Context, term leader.Term) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx, err := c.writer.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if !c.Reckless {
		if err := postgres.Guard(ended, tx); err == nil || !errors.Is(err, leader.ErrNotLeader) && tx.Conn().PgConn().TxStatus() == 'T' {
			c.Say("failed: the guard of an ended term says", err)
		}
	}
	_ = c.writer.Act(ctx, tx, key, term)
	return tx.Commit(ctx)
}
