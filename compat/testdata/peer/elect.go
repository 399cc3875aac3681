package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/backoff"
	"github.com/pglatch/pglatch/leader/file"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/leader/postgres"
	leasepostgres "github.com/pglatch/pglatch/lease/postgres"
)

func isTableError(err error) bool {
	_, ok := errors.AsType[*postgres.TableError](err)
	return ok
}

// A candidate takes part in an election.
type candidate struct {
	elector *leader.Elector
	pool    *pgxpool.Pool
	led     context.Context // of its last term, without its end
}

// newCandidate has as arguments the kind of the backend, and the identity.
func newCandidate(ctx context.Context, dsn string, args []string) (role, error) {
	c := &candidate{}
	var err error
	if c.pool, err = connect(ctx, dsn); err != nil {
		return nil, err
	}
	backend, err := c.backend(args[0], dsn, args[1])
	if err != nil {
		return nil, err
	}
	c.elector, err = leader.New(leader.Config{
		Name: "compat", Backend: backend, Identity: args[1], LeaseDuration: 5 * time.Second, Retry: backoff.Fixed{Interval: 50 * time.Millisecond},
	})
	if err != nil {
		return nil, err
	}
	return c, c.elector.Start(ctx)
}

func (c *candidate) backend(kind, dsn, identity string) (leader.Backend, error) {
	switch kind {
	case "postgres":
		key, err := entities.Text("leader")
		if err != nil {
			return nil, err
		}
		return postgres.New(postgres.Config{DSN: dsn, Key: key, CreateTable: true, Answer: introspect.Config{AllowResign: true, Service: identity}})
	case "leased":
		store, err := leasepostgres.New(leasepostgres.Config{Pool: c.pool})
		if err != nil {
			return nil, err
		}
		return leased.New(store, leased.Config{Name: "leader", PollInterval: 50 * time.Millisecond})
	case "file":
		return file.NewBackend(os.Getenv("COMPAT_FILE")), nil
	}
	return nil, unknown(kind)
}

func (c *candidate) close() {
	_ = c.elector.Shutdown(context.Background())
	c.pool.Close()
}

func (c *candidate) answer(ctx context.Context, verb string, _ []string) (string, error) {
	switch verb {
	case "lead":
		if err := c.elector.WaitForLeadership(ctx); err != nil {
			return "", err
		}
		c.led = context.WithoutCancel(c.elector.Context())
		return fmt.Sprint("term ", c.elector.Term().Uint64()), nil
	case "seen": // the leader that another node would see
		holder, ok, err := c.elector.Leader(ctx)
		if err != nil || !ok {
			return "nobody", err
		}
		return fmt.Sprint(holder.Identity, " ", holder.Term.Uint64()), nil
	case "leads":
		return fmt.Sprint(c.elector.IsLeader()), nil
	case "write": // in its last term, even if that has ended: the server decides
		err := postgres.InTx(c.led, c.pool, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE counter SET n = n + 1")
			return err
		})
		if errors.Is(err, leader.ErrNotLeader) {
			return "not leader", nil
		}
		return "written", err
	case "down":
		return "down", c.elector.StepDown(ctx)
	case "stop":
		return "stopped", c.elector.Shutdown(ctx)
	}
	return "", unknown(verb)
}
