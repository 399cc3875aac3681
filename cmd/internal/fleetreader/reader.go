// Package fleetreader reads what programs keep in tables beside their locks, for the commands that show it.
package fleetreader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/sqlstate"
	leasepg "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
	oncepg "github.com/pglatch/pglatch/once/postgres"
)

// The bounds of one Fleet.
const (
	mostGroups    = 50
	mostShards    = 20_000 // of one group
	mostJobs      = 200
	mostMailboxes = 100
	mostLeases    = 1000
)

// readTimeout bounds one Read: it waits for a table that a migration has locked.
const readTimeout = 3 * time.Second

// A Reader reads one database. It is safe for concurrent use, one Read at a time.
type Reader struct {
	config *pgx.ConnConfig

	mu     sync.Mutex
	pool   *pgxpool.Pool // nil before the first Read
	ticks  *oncepg.Store
	leases *leasepg.Store
	groups map[string]*watched
}

// New returns a Reader of the database of cc. It connects at the first Read.
func New(cc *pgx.ConnConfig) *Reader {
	return &Reader{config: program.Unprepared(cc.Copy()), groups: map[string]*watched{}}
}

// Close closes the connections.
func (r *Reader) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pool != nil {
		r.pool.Close()
	}
}

// tablesSQL lists the tables that exist. It needs no rights on their schemas.
const tablesSQL = `SELECT (n.nspname::pg_catalog.text OPERATOR(pg_catalog.||) '.' OPERATOR(pg_catalog.||) c.relname::pg_catalog.text)
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
	WHERE n.nspname IN ('public', 'pglatch_turns', 'pglatch_lease') AND c.relname IN ('pglatch_shard', 'pglatch_once', 'nodes', 'locks')`

// Read returns what the tables have. Tables that do not exist are left out; those that the role may not read are
// among the Problems. The error is that of the connection.
func (r *Reader) Read(ctx context.Context) (f fleet.Fleet, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := r.open(ctx); err != nil {
		return f, err
	}
	found, err := column[string](ctx, r.pool, tablesSQL)
	if err != nil {
		return f, err
	}
	f.Locks = map[namespace.Tag]fleet.Lock{}
	for _, part := range []struct {
		name, table string
		read        func(context.Context, *fleet.Fleet) error
	}{
		{"shards", "public.pglatch_shard", r.readGroups},
		{"ticks", "public.pglatch_once", r.readJobs},
		{"turns", "pglatch_turns.nodes", r.readMailboxes},
		{"leases", "pglatch_lease.locks", r.readLeases},
	} {
		if !slices.Contains(found, part.table) {
			continue
		}
		if err := part.read(ctx, &f); err != nil {
			f.Problems = append(f.Problems, problem(part.name, err))
		}
	}
	return f, nil
}

// denied begins the problem of tables that the role may not read.
const denied = "the monitor's role may not read "

// Denied reports whether a problem is a missing right: to read again does not help.
func Denied(problem string) bool { return strings.HasPrefix(problem, denied) }

// problem says why a table was not read, without details that are for a log.
func problem(what string, err error) string {
	switch {
	case sqlstate.Of(err) == sqlstate.Privilege:
		return fmt.Sprintf(denied+"the tables of %s: GRANT SELECT on them, and USAGE on their schema, shows them", what)
	case errors.Is(err, context.DeadlineExceeded), sqlstate.Of(err) == sqlstate.QueryCanceled, sqlstate.Of(err) == sqlstate.LockNotAvailable:
		return fmt.Sprintf("the tables of %s did not answer in time", what)
	}
	return fmt.Sprintf("the tables of %s cannot be read", what)
}

func (r *Reader) open(ctx context.Context) (err error) {
	if r.pool != nil {
		return nil
	}
	config, err := pgxpool.ParseConfig("")
	if err != nil {
		return err
	}
	config.ConnConfig = r.config.Copy()
	config.MaxConns, config.MinConns, config.MaxConnIdleTime = 1, 0, 30*time.Second
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), config)
	if err != nil {
		return err
	}
	if r.ticks, err = oncepg.New(oncepg.Config{Pool: pool}); err == nil {
		r.leases, err = leasepg.New(leasepg.Config{Pool: pool})
	}
	if err != nil {
		pool.Close()
		return err
	}
	r.pool = pool
	return nil
}

// column returns the values of a query of one column.
func column[T any](ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) ([]T, error) {
	rows, err := pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// cut returns the first of many, and notes that there are more.
func cut[T any](f *fleet.Fleet, all []T, most int) []T {
	f.More = f.More || len(all) > most
	return slices.Clip(all[:min(len(all), most)])
}
