package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
)

// The suffixes of the names of the tables next to the table of terms.
const (
	memberSuffix = "_member"
	orderSuffix  = "_order"
)

// Schema returns the SQL that creates the three tables unless they exist, for migrations. table is as in
// Config; "" = DefaultTable. The rights are:
//
//   - Nodes: SELECT, INSERT and UPDATE on table; SELECT, INSERT, UPDATE and DELETE on table_member; SELECT on
//     table_order
//   - Roles that pin and drain: SELECT, INSERT, UPDATE and DELETE on table_order; for "pglatch shards" also
//     SELECT on the other two
//   - Transactions with a Guard: SELECT and UPDATE on table
//
// A shard has one permanent row. If the row is deleted, the shard's terms start over.
func Schema(table string) string {
	return pgtable.SQL(tables(cmp.Or(table, DefaultTable))...)
}

func tables(name string) []pgtable.Table {
	return []pgtable.Table{{Name: name, Columns: `	shards text NOT NULL,           -- the group: "tenant=7"
	name text NOT NULL,
	key bigint NOT NULL,            -- of the lock: (classid << 32) | objid
	era int NOT NULL,               -- the term is (era, n): each is greater than all before
	n bigint NOT NULL,
	timeline bigint NOT NULL,       -- the server that counted it
	system_identifier bigint NOT NULL,
	server_start timestamptz NOT NULL,
	written text NOT NULL,          -- database and transaction that wrote the row
	pid int NOT NULL,               -- the session that claimed it last
	since timestamptz NOT NULL,
	PRIMARY KEY (shards, name),
	UNIQUE (shards, key)`}, {Name: name + memberSuffix, Columns: `	shards text NOT NULL,
	pid int NOT NULL,               -- valid while this session shares the lock of the members
	identity text NOT NULL,
	weight int NOT NULL,
	list bigint NOT NULL,           -- a digest of the names that it knows
	draining boolean NOT NULL,
	refuses text NOT NULL,          -- shards that it cannot claim now
	announced timestamptz NOT NULL,
	PRIMARY KEY (shards, pid)`}, {Name: name + orderSuffix, Columns: `	shards text NOT NULL,
	kind text NOT NULL,             -- 'pin': identity is to own the shard subject; 'drain': subject is to give up what it owns
	subject text NOT NULL,
	identity text NOT NULL,
	PRIMARY KEY (shards, kind, subject)`}}
}

// Migrate creates the tables unless they exist, on a connection of its own. Several processes may do so at
// the same time. If a table lacks a column, or the role may not read it, Migrate returns a *TableError and
// leaves the tables unchanged.
func (b *Backend) Migrate(ctx context.Context) error {
	err := pgreach.Do(ctx, b.plain, func(conn *pgx.Conn) error {
		return pgtable.Create(ctx, conn, "postgres.Schema or Backend.Migrate", tables(b.config.Table)...)
	})
	if refused, ok := errors.AsType[*pgtable.CreateError](err); ok {
		return driver.Permanent(fmt.Errorf("shards: %w", refused))
	}
	if err != nil {
		return fmt.Errorf("shards: creating the table %s: %w", b.config.Table, b.failed(err))
	}
	return nil
}
