package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards"
	shardspostgres "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// spreaders are the measured systems. An Elector has its own connection, so there are fewer of them.
var spreaders = []spreader{
	{name: "pglatch", shards: 10_000, run: runShards},
	{name: "pglatch", shards: 300, run: runShards},
	{name: "peer=elector-per-shard", shards: 60, keeps: true, run: runElectors},
	{name: "peer=skip-locked", shards: 10_000, setup: tableSQL, run: runTable},
}

var tenants = namespace.Must(9, "tenant")

func runShards(ctx context.Context, dsn string, n int, work func(context.Context, int)) error {
	backend, err := shardspostgres.New(shardspostgres.Config{DSN: dsn, Namespace: tenants, CreateTable: true})
	if err != nil {
		return err
	}
	node, err := shards.New(shards.Config{Name: "bench", Backend: backend, Count: n})
	if err != nil {
		return err
	}
	return node.Run(ctx, func(ctx context.Context, s shards.Shard) error {
		shard, err := strconv.Atoi(s.Name)
		if err == nil {
			work(ctx, shard)
		}
		return err
	})
}

// runElectors runs an election for each shard.
func runElectors(ctx context.Context, dsn string, n int, work func(context.Context, int)) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for shard := range n {
		all.Go(func() {
			backend, err := postgres.New(postgres.Config{DSN: dsn, Key: namespace.Pair(8, int32(shard)), CreateTable: true})
			if err != nil {
				errs[shard] = err
				return
			}
			e, err := leader.New(leader.Config{Name: fmt.Sprint("bench-", shard), Backend: backend})
			if err != nil {
				errs[shard] = err
				return
			}
			errs[shard] = e.Run(ctx, func(ctx context.Context) error { work(ctx, shard); return nil })
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// The usual ownership table: each owner renews its rows. It takes rows without an owner, and
// rows whose owner has not renewed them for a lease, up to its fair share.
const (
	tableSQL = `
CREATE TABLE ownership (shard int PRIMARY KEY, owner text, seen timestamptz);
CREATE INDEX ON ownership (owner);
CREATE TABLE node (name text PRIMARY KEY, seen timestamptz);
INSERT INTO ownership SELECT n FROM generate_series(0, $N - 1) AS n;
`
	tablePoll  = time.Second
	tableBeat  = 5 * time.Second
	tableLease = 15 * time.Second

	tableJoinSQL  = `INSERT INTO node VALUES ($1, now()) ON CONFLICT (name) DO UPDATE SET seen = now()`
	tableFairSQL  = `SELECT ceil($1::float8 / greatest(count(*), 1))::int FROM node WHERE seen > now() - $2::interval`
	tableClaimSQL = `UPDATE ownership SET owner = $1, seen = now() WHERE shard IN (SELECT shard FROM ownership
		WHERE owner IS NULL OR seen < now() - $2::interval LIMIT $3 FOR UPDATE SKIP LOCKED) RETURNING shard`
	tableBeatSQL  = `UPDATE ownership SET seen = now() WHERE owner = $1`
	tableLeaveSQL = `WITH gone AS (DELETE FROM node WHERE name = $1) UPDATE ownership SET owner = NULL WHERE owner = $1`
)

// runTable does not give up excess rows: a late node gets only free ones.
func runTable(ctx context.Context, dsn string, n int, work func(context.Context, int)) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	self := fmt.Sprintf("node-%d-%p", os.Getpid(), pool)
	var all sync.WaitGroup
	if _, err := pool.Exec(ctx, tableJoinSQL, self); err != nil {
		return err
	}
	owned := 0
	poll, beat := time.NewTicker(tablePoll), time.NewTicker(tableBeat)
	defer poll.Stop()
	defer beat.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-beat.C:
			for _, sql := range []string{tableBeatSQL, tableJoinSQL} {
				if _, err := pool.Exec(context.WithoutCancel(ctx), sql, self); err != nil {
					return err
				}
			}
			continue
		case <-poll.C:
		}
		claimed, err := claimRows(context.WithoutCancel(ctx), pool, self, n, owned)
		if err != nil {
			return err
		}
		owned += len(claimed)
		for _, shard := range claimed {
			all.Go(func() { work(ctx, shard) })
		}
	}
	all.Wait()
	_, err = pool.Exec(context.WithoutCancel(ctx), tableLeaveSQL, self)
	return err
}

func claimRows(ctx context.Context, pool *pgxpool.Pool, self string, n, owned int) (claimed []int, err error) {
	var fair int
	if err := pool.QueryRow(ctx, tableFairSQL, n, tableLease).Scan(&fair); err != nil || fair <= owned {
		return nil, err
	}
	rows, err := pool.Query(ctx, tableClaimSQL, self, tableLease, fair-owned)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var shard int
		if err := rows.Scan(&shard); err != nil {
			return nil, err
		}
		claimed = append(claimed, shard)
	}
	return claimed, rows.Err()
}
