//go:build integration

package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// defiance is how long a stubborn node goes on with transactions.
const defiance = time.Second

// A candidate is a child that writes guarded transactions while it leads.
type candidate struct {
	*electiontest.Child
	work    *pgxpool.Pool
	defying sync.WaitGroup
}

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
	c := &candidate{Child: child, work: work}
	err = c.Stand(ctx, backend, c.lead)
	c.defying.Wait()
	return err
}

// lead writes for as long as the node leads.
func (c *candidate) lead(leading context.Context) {
	term := leader.TermOfContext(leading)
	if c.Stubborn {
		c.defying.Go(func() { c.defy(leading, term) })
	}
	ctx := c.Outlasting(leading)
	// From here on no older term may write, not only from the first write on.
	_, _ = c.work.Exec(ctx, announceSQL, int64(term.Uint64()))
	for ctx.Err() == nil {
		_ = c.write(ctx, term)
		electiontest.Pause(ctx, rand.N(5*time.Millisecond))
	}
}

// write is one transaction, guarded unless the node is reckless.
func (c *candidate) write(ctx context.Context, term leader.Term) error {
	return c.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, writeSQL, int64(term.Uint64()), c.Node)
		if rand.IntN(4) == 0 { // the longer it is under way, the more can happen meanwhile
			electiontest.Pause(ctx, rand.N(5*time.Millisecond))
		}
		return err
	})
}

func (c *candidate) inTx(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	if !c.Reckless {
		return postgres.InTx(ctx, c.work, fn)
	}
	ctx = context.WithoutCancel(ctx)
	return pgx.BeginFunc(ctx, c.work, func(tx pgx.Tx) error { return fn(ctx, tx) })
}

// defy goes on with transactions after the end of a term, in three ways.
func (c *candidate) defy(ctx context.Context, term leader.Term) {
	<-ctx.Done()
	var refused, committed, hidden int
	count := func(committed *int, err error) {
		if err == nil {
			*committed++
		} else {
			refused++
		}
	}
	for begin := time.Now(); time.Since(begin) < defiance; electiontest.Pause(context.Background(), rand.N(5*time.Millisecond)) {
		count(&committed, c.write(ctx, term))
		count(&committed, c.ignoreGuard(ctx, term))
		// Here the context does not tell, only the server can. It lets the transaction
		// pass as long as the session is not ended, and nobody else leads.
		count(&hidden, c.write(context.WithoutCancel(ctx), term))
	}
	c.Say("count refused", refused)
	c.Say("count committed", committed)
	c.Say("count hidden", hidden)
}

// ignoreGuard writes whatever the guard says.
func (c *candidate) ignoreGuard(ended context.Context, term leader.Term) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx, err := c.work.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if !c.Reckless {
		if err := postgres.Guard(ended, tx); err == nil || !errors.Is(err, leader.ErrNotLeader) && tx.Conn().PgConn().TxStatus() == 'T' {
			c.Say("failed: the guard of an ended term says", err)
		}
	}
	_, _ = tx.Exec(ctx, writeSQL, int64(term.Uint64()), c.Node)
	return tx.Commit(ctx)
}
