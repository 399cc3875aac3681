package leadercmd

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/cli/program"
)

// A migrated says what a migration did to its table. Who migrates at the same time may
// have done it.
type migrated struct {
	Table        string   `json:"table"`
	Made         bool     `json:"made"`          // the table; else it was there
	AddedColumns []string `json:"added_columns"` // to a table that was there
	NewEra       int64    `json:"new_era,omitempty"`
}

// migration runs migrate and finds out what it did.
func migration(ctx context.Context, app *program.App, table string, migrate func(context.Context) error) (migrated, error) {
	m := migrated{Table: table, AddedColumns: []string{}}
	conn, err := app.Connect(ctx)
	if err != nil {
		return m, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	before, err := columnsOf(ctx, conn, table)
	if err != nil {
		return m, program.Unavailable(ctx, err)
	}
	if err := migrate(ctx); err != nil {
		return m, program.Unavailable(ctx, err)
	}
	after, err := columnsOf(ctx, conn, table)
	if err != nil {
		return m, program.Unavailable(ctx, err)
	}
	if m.Made = len(before) == 0; !m.Made {
		m.AddedColumns = append(m.AddedColumns, slices.DeleteFunc(after, func(c string) bool { return slices.Contains(before, c) })...)
	}
	return m, nil
}

// columnsOf are the columns of a table, none if it is not there.
func columnsOf(ctx context.Context, conn *pgx.Conn, table string) ([]string, error) {
	rows, err := conn.Query(ctx, `SELECT attname::text FROM pg_catalog.pg_attribute
		WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, pgx.Identifier(strings.Split(table, ".")).Sanitize())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func (m migrated) output() program.Output {
	return program.Output{Document: m, Text: program.Text(func(b *bytes.Buffer) {
		switch {
		case m.Made:
			fmt.Fprintf(b, "made the table %s\n", m.Table)
		case len(m.AddedColumns) > 0:
			fmt.Fprintf(b, "the table %s was there: added the columns %s\n", m.Table, strings.Join(m.AddedColumns, ", "))
		default:
			fmt.Fprintf(b, "the table %s was there already, as it must be: nothing was changed\n", m.Table)
		}
		if m.NewEra > 0 {
			fmt.Fprintf(b, "a new era has begun for %d elections\n", m.NewEra)
		}
	})}
}
