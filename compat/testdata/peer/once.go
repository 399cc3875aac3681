package main

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/once"
	"github.com/pglatch/pglatch/once/postgres"
)

// A ticks runs ticks of one job.
type ticks struct {
	node   string
	runner *once.Runner
	pool   *pgxpool.Pool
	began  chan struct{}
	finish chan struct{}
	result chan string
}

// newTicks has as argument the name of the node.
func newTicks(ctx context.Context, dsn string, args []string) (role, error) {
	t := &ticks{node: args[0], began: make(chan struct{}), finish: make(chan struct{}), result: make(chan string, 1)}
	var err error
	if t.pool, err = connect(ctx, dsn); err != nil {
		return nil, err
	}
	store, err := postgres.New(postgres.Config{Pool: t.pool, CreateTable: true})
	if err != nil {
		return nil, err
	}
	t.runner, err = once.New(once.Config{Store: store, Node: t.node})
	return t, err
}

func (t *ticks) close() { t.pool.Close() }

func (t *ticks) answer(ctx context.Context, verb string, args []string) (string, error) {
	if verb == "finish" {
		t.finish <- struct{}{}
		return <-t.result, nil
	}
	second, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return "", err
	}
	tick := time.Unix(second, 0)
	switch verb {
	case "run":
		result, err := t.runner.Do(ctx, "job", tick, t.work)
		return describe(result), err
	case "tx":
		var result once.Result
		err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) (err error) {
			result, err = postgres.Options{Node: t.node}.DoTx(ctx, tx, "job", tick, func(ctx context.Context) error {
				_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1")
				return err
			})
			return err
		})
		return describe(result), err
	case "begin": // runs until finish
		go func() {
			result, err := t.runner.Do(ctx, "job", tick, func(context.Context) error {
				close(t.began)
				<-t.finish
				return nil
			})
			if err != nil {
				t.result <- "error: " + err.Error()
				return
			}
			t.result <- describe(result)
		}()
		<-t.began
		return "began", nil
	}
	return "", unknown(verb)
}

func (t *ticks) work(ctx context.Context) error {
	_, err := t.pool.Exec(ctx, "UPDATE counter SET n = n + 1")
	return err
}

func describe(r once.Result) string {
	if r.Did {
		return "did"
	}
	return r.State.String() + " " + r.Node
}
