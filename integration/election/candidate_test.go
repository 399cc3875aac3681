//go:build integration

package election

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
)

// A job is what a child process is told to do, through its environment.
type job struct {
	Node    int           `json:"node"`
	DSN     string        `json:"dsn"`  // of the election, through a proxy
	Work    string        `json:"work"` // of the guarded transactions, straight to the server
	Witness string        `json:"witness"`
	Grace   time.Duration `json:"grace"` // ReconnectGrace
	// Stubborn nodes go on with transactions after the end of their term.
	Stubborn bool `json:"stubborn"`
	// Busy nodes look at their context all the time.
	Busy bool `json:"busy"`
	// Reckless nodes guard nothing and do not look at their context.
	Reckless bool `json:"reckless"`
}

// defiance is how long a stubborn node goes on.
const defiance = time.Second

// A candidate is a child at work.
type candidate struct {
	job     job
	work    *pgxpool.Pool
	witness net.Conn
	elector *leader.Elector
	defying sync.WaitGroup
}

// stand takes part in the election until it is told to stop. It says what happens
// on standard output, a line each.
func stand(ctx context.Context, j job) error {
	config, err := pgxpool.ParseConfig(j.Work)
	if err != nil {
		return err
	}
	config.MaxConns = 4
	work, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer work.Close()
	witness, err := new(net.Dialer).DialContext(ctx, "udp4", j.Witness)
	if err != nil {
		return err
	}
	elector, err := newElector(fmt.Sprintf("node-%d-%d", j.Node, os.Getpid()), postgres.Config{DSN: j.DSN}, leader.Config{LeaseDuration: lease, ReconnectGrace: j.Grace})
	if err != nil {
		return err
	}
	c := &candidate{job: j, work: work, witness: witness, elector: elector}
	c.report()
	go c.obey(ctx)
	err = elector.Run(ctx, c.lead)
	c.defying.Wait()
	return err
}

// report says what the elector tells.
func (c *candidate) report() {
	c.elector.OnAcquired(func(term leader.Term) { fmt.Println("acquired", term) })
	c.elector.OnRecovered(func(term leader.Term) { fmt.Println("recovered", term) })
	c.elector.OnReleased(func(term leader.Term) { fmt.Println("released", term) })
	c.elector.OnLost(func(term leader.Term, err error) { fmt.Println("lost", term, err) })
	c.elector.OnStopped(func(err error) { fmt.Println("stopped", err) })
	c.elector.OnError(func(err error) { fmt.Println("error", err) })
	c.elector.OnAcquireFailed(func(err error) {
		if err == nil {
			fmt.Println("follows")
		}
	})
}

// obey does what the parent says, on standard input.
func (c *candidate) obey(ctx context.Context) {
	for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
		ctx, cancel := context.WithTimeout(ctx, patience)
		var err error
		switch scanner.Text() {
		case "step down":
			err = c.elector.StepDown(ctx)
		case "stop":
			err = c.elector.Shutdown(ctx)
		}
		cancel()
		if err != nil {
			fmt.Println("failed", err)
		}
	}
}

// lead is the leader's work.
func (c *candidate) lead(ctx context.Context) error {
	term := leader.TermOfContext(ctx)
	if c.job.Stubborn {
		office := ctx
		c.defying.Go(func() { c.defy(office, term) })
	}
	if c.job.Reckless {
		ctx = outlasting(ctx)
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.act(ctx, term) })
	wg.Go(func() {
		// From here on no older term may write, not only from the first write on.
		_, _ = c.work.Exec(ctx, announceSQL, int64(term.Uint64()))
		for ctx.Err() == nil {
			_ = c.write(ctx, term)
			pause(ctx, rand.N(5*time.Millisecond))
		}
	})
	wg.Wait()
	return nil
}

// outlasting returns a context that ends when ctx has been over for a while.
func outlasting(ctx context.Context) context.Context {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(defiance, cancel) })
	return longer
}

// act does what nothing guards: it looks at its context, and tells the witness.
func (c *candidate) act(ctx context.Context, term leader.Term) {
	for n := uint64(1); ; n++ {
		looked := time.Now()
		if ctx.Err() != nil {
			return
		}
		_, _ = c.witness.Write(act{node: c.job.Node, term: term, n: n, looked: looked}.encode())
		next := time.Millisecond + rand.N(time.Millisecond)
		for c.job.Busy && time.Since(looked) < next && ctx.Err() == nil {
		}
		if !c.job.Busy {
			pause(ctx, next)
		}
	}
}

// write is one transaction, guarded unless the node is reckless.
func (c *candidate) write(ctx context.Context, term leader.Term) error {
	return c.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, writeSQL, int64(term.Uint64()), c.job.Node)
		if rand.IntN(4) == 0 { // the longer it is under way, the more can happen meanwhile
			pause(ctx, rand.N(5*time.Millisecond))
		}
		return err
	})
}

func (c *candidate) inTx(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	if !c.job.Reckless {
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
	for begin := time.Now(); time.Since(begin) < defiance; pause(context.Background(), rand.N(5*time.Millisecond)) {
		count(&committed, c.write(ctx, term))
		count(&committed, c.ignoreGuard(ctx, term))
		// Here the context does not tell, only the server can. It lets the transaction
		// pass as long as the session is not ended, and nobody else leads.
		count(&hidden, c.write(context.WithoutCancel(ctx), term))
	}
	fmt.Println("defied", refused, committed, hidden)
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
	if !c.job.Reckless {
		if err := postgres.Guard(ended, tx); err == nil || !errors.Is(err, leader.ErrNotLeader) && tx.Conn().PgConn().TxStatus() == 'T' {
			fmt.Println("failed: the guard of an ended term says", err)
		}
	}
	_, _ = tx.Exec(ctx, writeSQL, int64(term.Uint64()), c.job.Node)
	return tx.Commit(ctx)
}

// pause waits, and reports whether ctx still runs.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
