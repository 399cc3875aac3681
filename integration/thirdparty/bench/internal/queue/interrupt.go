package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/histogram"
	"github.com/pglatch/pglatch/turns"
)

// An Interruption is how long parts of it took.
type Interruption struct {
	All  histogram.Histogram // from the call of Interrupt until the context of the turn ends
	Call histogram.Histogram // the call of Interrupt alone, which ends with its commit
	Ping histogram.Histogram // for comparison: one SELECT 1 at that time
}

// Interrupts measures interrupts of a turn on another replica. Each replica has connections of its own. busy is how many other
// turns of that replica commit meanwhile, one message after another.
func Interrupts(ctx context.Context, admin string, times, busy int) (took Interruption, err error) {
	settings := fmt.Sprintf("pool_max_conns=%d", busy+10)
	site, remove, err := newSite(ctx, admin, busy+1, settings)
	if err != nil {
		return took, err
	}
	defer remove()
	other, err := siteOn(ctx, site.DSN, busy+1, settings)
	if err != nil {
		return took, err
	}
	defer other.Pool.Close()
	var replicas [2]*mailbox
	for i, s := range []*Site{site, other} {
		if replicas[i], err = openTurns(ctx, s, 1); err != nil {
			return took, err
		}
		defer replicas[i].Close()
	}
	ctx, stop := context.WithCancel(ctx)
	served, began, ended := make(chan error, 1), make(chan struct{}, 1), make(chan time.Time, 1)
	go func() {
		served <- replicas[0].Mailbox.Serve(ctx, func(ctx context.Context, t *turns.Turn) error {
			if t.Entity().Entity() != "0" {
				return t.Commit(ctx, func(tx pgx.Tx) error { return replicas[0].send(ctx, tx, t.Entity().Entity()) })
			}
			began <- struct{}{}
			<-ctx.Done()
			ended <- time.Now()
			if !errors.Is(context.Cause(ctx), turns.ErrInterrupted) {
				return context.Cause(ctx)
			}
			return nil
		})
	}()
	defer func() {
		stop()
		err = errors.Join(err, <-served)
	}()
	for i := range busy {
		if err := replicas[1].post(ctx, fmt.Sprint(i+1)); err != nil {
			return took, err
		}
	}
	key, err := entities.Text("0")
	if err != nil {
		return took, err
	}
	for range times {
		if err := replicas[1].post(ctx, "0"); err != nil {
			return took, err
		}
		<-began
		before := time.Now()
		if _, err := replicas[1].site.Pool.Exec(ctx, "SELECT 1"); err != nil {
			return took, err
		}
		took.Ping.Add(time.Since(before))
		before = time.Now()
		if err := replicas[1].Interrupt(ctx, key, "the bench measures it"); err != nil {
			return took, err
		}
		took.Call.Add(time.Since(before))
		took.All.Add((<-ended).Sub(before))
	}
	return took, nil
}

// post sends a message in a transaction of its own.
func (q *mailbox) post(ctx context.Context, entity string) error {
	return pgx.BeginFunc(ctx, q.site.Pool, func(tx pgx.Tx) error { return q.send(ctx, tx, entity) })
}

func (q *mailbox) send(ctx context.Context, tx pgx.Tx, entity string) error {
	key, err := entities.Text(entity)
	if err == nil {
		_, err = q.Mailbox.Send(ctx, tx, key, turns.Message{})
	}
	return err
}
