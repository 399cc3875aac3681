package leadercmd

import (
	"bytes"
	"context"
	"fmt"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/pgtable"
)

// A migrated is the effect of a migration on its table. A concurrent migration may have caused it.
type migrated struct {
	Table  string `json:"table"`
	Made   bool   `json:"made"` // the table was created; otherwise it existed
	NewEra int64  `json:"new_era,omitempty"`
}

// migration runs migrate and detects its effect.
func migration(ctx context.Context, app *program.App, table string, migrate func(context.Context) error) (migrated, error) {
	m := migrated{Table: table}
	conn, err := app.Connect(ctx)
	if err != nil {
		return m, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT pg_catalog.to_regclass($1) IS NULL", pgtable.Quote(table)).Scan(&m.Made)
	if err == nil {
		err = migrate(ctx)
	}
	if err != nil {
		return m, program.Unavailable(ctx, err)
	}
	return m, nil
}

func (m migrated) output() program.Output {
	return program.Output{Document: m, Text: func(b *bytes.Buffer) {
		switch {
		case m.Made:
			fmt.Fprintf(b, "made the table %s\n", m.Table)
		default:
			fmt.Fprintf(b, "the table %s was there already, as it must be: nothing was changed\n", m.Table)
		}
		if m.NewEra > 0 {
			fmt.Fprintf(b, "a new era has begun for %d elections\n", m.NewEra)
		}
	}}
}
